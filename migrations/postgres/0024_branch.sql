-- The branch of a task, where a session named it by `agent.branch_pattern`, recorded before the first push. NULL: the one that follows
-- from its item and id. No two tasks of a repository have the same: pull requests are looked up by it.
ALTER TABLE tasks ADD COLUMN branch text;
CREATE UNIQUE INDEX tasks_by_branch ON tasks (tracker, host, repo_id, branch) WHERE branch IS NOT NULL;
