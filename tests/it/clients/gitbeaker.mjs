// Walks the forge as a person with gitbeaker would: label, merge request, discussion, reaction, merge.
// Arguments: the forge's address, a token, a project with the branch `work`, and a thread on a line of merge request 1.
import assert from "node:assert/strict";
import { Gitlab } from "@gitbeaker/rest";

const [host, token, path] = process.argv.slice(2);
const api = new Gitlab({ host, token });

const me = await api.Users.showCurrentUser();
const project = await api.Projects.show(path);
assert.ok(Number.isInteger(project.id) && project.path_with_namespace === path && project.default_branch === "main");

const issue = await api.Issues.create(project.id, "Walk", { description: "text", labels: "bug" });
assert.ok(issue.state === "opened" && issue.author.username === me.username);
await api.Issues.edit(project.id, issue.iid, { addLabels: "a b,c", removeLabels: "bug" });
const edited = await api.Issues.show(issue.iid, { projectId: project.id });
assert.deepEqual(edited.labels.toSorted(), ["a b", "c"]);
const events = await api.IssueLabelEvents.all(project.id, issue.iid);
assert.deepEqual(
  events.map((event) => [event.action, event.label.name, event.user.username]),
  [["add", "bug"], ["remove", "bug"], ["add", "a b"], ["add", "c"]].map((event) => [...event, me.username]),
);

// Pages, by offset and by keyset.
for (let n = 0; n < 5; n += 1) {
  await api.Issues.create(project.id, `Page ${n}`);
}
const all = await api.Issues.all({ projectId: project.id, perPage: 2 });
assert.equal(new Set(all.map((one) => one.iid)).size, all.length);
assert.ok(all.length >= 6);

const note = await api.IssueNotes.create(project.id, issue.iid, "hello");
await api.IssueNotes.edit(project.id, issue.iid, note.id, { body: "hello again" });
const notes = (await api.IssueNotes.all(project.id, issue.iid)).filter((one) => !one.system);
assert.deepEqual(notes.map((one) => [one.body, one.author.username]), [["hello again", me.username]]);
const award = await api.IssueNoteAwardEmojis.award(project.id, issue.iid, note.id, "eyes");
assert.ok(award.name === "eyes" && award.user.username === me.username);
await assert.rejects(api.IssueNoteAwardEmojis.award(project.id, issue.iid, note.id, "eyes"));
const awards = await api.IssueNoteAwardEmojis.all(project.id, issue.iid, note.id);
assert.deepEqual(awards.map((one) => one.name), ["eyes"]);

const request = await api.MergeRequests.create(project.id, "work", "main", "Draft: Walk", {
  description: `Closes #${issue.iid}`,
});
assert.ok(request.draft && request.state === "opened" && request.source_project_id === project.id);
await assert.rejects(api.MergeRequests.create(project.id, "work", "main", "Walk"), (error) => {
  assert.equal(error.cause.response.status, 409);
  return true;
});
const discussion = await api.MergeRequestDiscussions.create(project.id, request.iid, "a question");
await api.MergeRequestDiscussions.addNote(project.id, request.iid, discussion.id, "an answer");
const shown = await api.MergeRequestDiscussions.show(project.id, request.iid, discussion.id);
assert.deepEqual(shown.notes.map((one) => one.body), ["a question", "an answer"]);


// A thread on a line is answered and resolved.
const threads = await api.MergeRequestDiscussions.all(project.id, 1);
const [thread] = threads.filter((one) => !one.individual_note);
await api.MergeRequestDiscussions.addNote(project.id, 1, thread.id, "done");
const resolved = await api.MergeRequestDiscussions.resolve(project.id, 1, thread.id, true);
assert.deepEqual(resolved.notes.map((one) => [one.body, one.resolved]), [["Here.", true], ["done", true]]);

await assert.rejects(api.MergeRequests.merge(project.id, request.iid));
await api.MergeRequests.edit(project.id, request.iid, { title: "Walk" });
await api.MergeRequests.merge(project.id, request.iid);
assert.equal((await api.MergeRequests.show(project.id, request.iid)).state, "merged");
assert.equal((await api.Issues.show(issue.iid, { projectId: project.id })).state, "closed");
console.log("walked");
