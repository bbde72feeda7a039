// Walks the forge as a person with Octokit would: labels, comments, reactions, a pull request, its reviews and checks,
// the merge. Arguments: the API's address, a token, a repository whose pull request 1 was reviewed and checked.
import assert from "node:assert/strict";
import { Octokit } from "@octokit/rest";

const [baseUrl, auth, repository] = process.argv.slice(2);
const [owner, repo] = repository.split("/");
const octokit = new Octokit({ baseUrl, auth, log: { debug() {}, info() {}, warn() {}, error() {} } });
const at = { owner, repo };

const { data: me } = await octokit.rest.users.getAuthenticated();
const { data: place } = await octokit.rest.repos.get(at);
assert.equal(place.full_name, repository);
assert.ok(Number.isInteger(place.id) && place.owner.login === owner && place.default_branch === "main");

// Labels: set, added, removed; each leaves an event.
const created = await octokit.rest.issues.create({ ...at, title: "Walk", body: "text", labels: ["bug"] });
const number = { ...at, issue_number: created.data.number };
assert.equal(created.status, 201);
assert.equal(created.data.user.login, me.login);
await octokit.rest.issues.addLabels({ ...number, labels: ["a b", "c"] });
await octokit.rest.issues.removeLabel({ ...number, name: "bug" });
const { data: issue } = await octokit.rest.issues.get(number);
assert.deepEqual(issue.labels.map((label) => label.name).sort(), ["a b", "c"]);
assert.ok(issue.state === "open" && issue.locked === false && !("pull_request" in issue));
const events = await octokit.paginate(octokit.rest.issues.listEvents, { ...number, per_page: 2 });
assert.deepEqual(
  events.filter((event) => event.label).map((event) => [event.event, event.label.name, event.actor.login]),
  [["labeled", "bug", me.login], ["labeled", "a b", me.login], ["labeled", "c", me.login], ["unlabeled", "bug", me.login]],
);
const labelled = await octokit.rest.issues.listForRepo({ ...at, labels: "a b,c" });
assert.deepEqual(labelled.data.map((one) => one.number), [issue.number]);

// Pages: the client follows the header's links.
for (let n = 0; n < 5; n += 1) {
  await octokit.rest.issues.create({ ...at, title: `Page ${n}` });
}
const all = await octokit.paginate(octokit.rest.issues.listForRepo, { ...at, state: "all", per_page: 2 });
assert.equal(new Set(all.map((one) => one.number)).size, all.length);
assert.ok(all.length >= 6);

// A list that has not changed is not sent again.
const { headers } = await octokit.rest.issues.listForRepo(at);
const unchanged = octokit.rest.issues.listForRepo({ ...at, headers: { "if-none-match": headers.etag } });
await assert.rejects(unchanged, { status: 304 });

// Comments and reactions.
const comment = (await octokit.rest.issues.createComment({ ...number, body: "hello" })).data;
const its = { ...at, comment_id: comment.id };
await octokit.rest.issues.updateComment({ ...its, body: "hello again" });
const comments = await octokit.paginate(octokit.rest.issues.listComments, number);
assert.deepEqual(comments.map((one) => [one.body, one.user.login]), [["hello again", me.login]]);
assert.ok(comments[0].updated_at >= comments[0].created_at && comments[0].html_url.startsWith("http"));
const first = await octokit.rest.reactions.createForIssueComment({ ...its, content: "eyes" });
const second = await octokit.rest.reactions.createForIssueComment({ ...its, content: "eyes" });
assert.deepEqual([first.status, second.status], [201, 200]);
const reactions = await octokit.rest.reactions.listForIssueComment(its);
assert.deepEqual(reactions.data.map((one) => [one.content, one.user.login]), [["eyes", me.login]]);
await octokit.rest.issues.deleteComment(its);
await assert.rejects(octokit.rest.issues.getComment(its), { status: 404 });

// Who may do what.
const level = await octokit.rest.repos.getCollaboratorPermissionLevel({ ...at, username: me.login });
assert.ok(["write", "admin"].includes(level.data.permission), level.data.permission);

// The pull request that was reviewed and checked.
const pull = (await octokit.rest.pulls.get({ ...at, pull_number: 1 })).data;
assert.ok(pull.state === "open" && pull.mergeable && pull.head.repo.full_name === repository);
const reviews = await octokit.paginate(octokit.rest.pulls.listReviews, { ...at, pull_number: 1 });
assert.deepEqual(reviews.map((one) => one.state), ["CHANGES_REQUESTED"]);
const lines = await octokit.paginate(octokit.rest.pulls.listReviewComments, { ...at, pull_number: 1 });
assert.ok(lines.length === 1 && lines[0].path === "greet.sh" && Number.isInteger(lines[0].line));
const reply = { ...at, pull_number: 1, comment_id: lines[0].id, body: "done" };
assert.equal((await octokit.rest.pulls.createReplyForReviewComment(reply)).data.in_reply_to_id, lines[0].id);

// Its thread is resolved by GraphQL, as its page does.
const asked = await octokit.graphql(
  `query Threads($owner: String!, $name: String!, $number: Int!) {
    repository(owner: $owner, name: $name) { pullRequest(number: $number) {
      reviewThreads(first: 100) { nodes { id isResolved comments(first: 1) { nodes { fullDatabaseId } } } }
    } } }`,
  { owner, name: repo, number: 1 },
);
const [thread] = asked.repository.pullRequest.reviewThreads.nodes;
assert.ok(thread.isResolved === false && thread.comments.nodes[0].fullDatabaseId === String(lines[0].id));
const done = await octokit.graphql(
  "mutation Resolve($thread: ID!) { resolveReviewThread(input: {threadId: $thread}) { thread { id isResolved } } }",
  { thread: thread.id },
);
assert.deepEqual(done.resolveReviewThread.thread, { id: thread.id, isResolved: true });

// Its pages would take the list under any name.
const { check_runs: runs } = (await octokit.rest.checks.listForRef({ ...at, ref: pull.head.sha })).data;
assert.deepEqual(runs.map((run) => [run.name, run.status, run.conclusion]), [["tests", "completed", "failure"]]);
const combined = await octokit.rest.repos.getCombinedStatusForRef({ ...at, ref: pull.head.sha });
assert.deepEqual(combined.data.statuses.map((one) => [one.context, one.state]), [["lint", "success"]]);

// Another one: once for a branch, merged at the commit that was checked.
const fresh = { ...at, head: "work", base: "main", title: "Walk", body: `Closes #${issue.number}` };
const opened = (await octokit.rest.pulls.create(fresh)).data;
await assert.rejects(octokit.rest.pulls.create(fresh), (error) => {
  assert.equal(error.status, 422);
  assert.match(error.response.data.errors[0].message, /already exists/);
  return true;
});
const heads = await octokit.rest.pulls.list({ ...at, head: `${owner}:work` });
assert.deepEqual(heads.data.map((one) => one.number), [opened.number]);
const wrong = octokit.rest.pulls.merge({ ...at, pull_number: opened.number, sha: "0".repeat(40) });
await assert.rejects(wrong, { status: 409 });
assert.ok((await octokit.rest.pulls.merge({ ...at, pull_number: opened.number, sha: opened.head.sha })).data.merged);
const merged = (await octokit.rest.pulls.get({ ...at, pull_number: opened.number })).data;
assert.ok(merged.state === "closed" && merged.merged_at);
const { data: file } = await octokit.rest.repos.getContent({ ...at, path: "new.txt", ref: "main" });
assert.equal(Buffer.from(file.content, "base64").toString(), "new\n");
await octokit.rest.git.deleteRef({ ...at, ref: "heads/work" });
await assert.rejects(octokit.rest.repos.getBranch({ ...at, branch: "work" }), { status: 404 });
console.log("walked");
