-- The tasks on issues of a repository that are over or paused without a result: they may have left a pull request.
CREATE INDEX IF NOT EXISTS tasks_without_result ON tasks (tracker, host, repo_id, updated_at)
    WHERE state IN ('failed', 'stopped', 'paused') AND item_kind = 'issue';
