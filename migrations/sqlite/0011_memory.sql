-- What a project's people decided: see ../postgres.
CREATE TABLE memory (
    project    TEXT NOT NULL,
    id         TEXT NOT NULL,
    category   TEXT NOT NULL,
    title      TEXT NOT NULL,
    summary    TEXT NOT NULL,
    content    TEXT NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('draft', 'active', 'archived')),
    tags       TEXT NOT NULL,
    source     TEXT NOT NULL CHECK (source IN ('human', 'session')),
    confidence TEXT NOT NULL CHECK (confidence IN ('low', 'medium', 'high')),
    expires_at INTEGER,
    version    INTEGER NOT NULL DEFAULT 1 CHECK (version >= 1),
    nonce      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project, id)
) STRICT;
