-- What a project's people decided. Text that came from outside is stored with NUL replaced, which text cannot hold.
CREATE TABLE memory (
    -- The name of the project: HOST/OWNER/NAME, or a folder.
    project    text NOT NULL,
    -- In the order of its bytes, in both databases.
    id         text COLLATE "C" NOT NULL,
    category   text NOT NULL,
    title      text NOT NULL,
    summary    text NOT NULL,
    content    text NOT NULL,
    status     text NOT NULL CHECK (status IN ('draft', 'active', 'archived')),
    -- A JSON array of strings.
    tags       text NOT NULL,
    source     text NOT NULL CHECK (source IN ('human', 'session')),
    confidence text NOT NULL CHECK (confidence IN ('low', 'medium', 'high')),
    -- Milliseconds since 1970, UTC: a date that people chose, not a time of this database's clock.
    expires_at bigint,
    version    bigint NOT NULL DEFAULT 1 CHECK (version >= 1),
    -- Names the newest write, so that a repeat after a lost commit finds its own.
    nonce      uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, id)
);
