"""Walks the forge as a person with python-gitlab would: label, merge request, discussion, merge.

Arguments: the forge's address, a token, the file of its authority, a project with the branch `work`, and a thread on a
line of merge request 1.
Prints `walked` at the end; a wrong shape is an exception.
"""

import sys

import gitlab

address, token, authority, path = sys.argv[1:]
client = gitlab.Gitlab(address, private_token=token, ssl_verify=authority, per_page=2)
client.auth()
me = client.user.username
assert isinstance(client.user.id, int) and client.version()[0] == "16.7.0"

project = client.projects.get(path)
assert project.path_with_namespace == path and project.default_branch == "main"
assert client.projects.get(project.id).id == project.id

# Labels: set, added, removed; each leaves an event.
issue = project.issues.create({"title": "Walk", "description": "text", "labels": ["bug"]})
assert issue.state == "opened" and issue.labels == ["bug"] and issue.author["username"] == me
client.http_put(f"/projects/{project.id}/issues/{issue.iid}", post_data={"add_labels": "a b,c", "remove_labels": "bug"})
issue = project.issues.get(issue.iid)
assert sorted(issue.labels) == ["a b", "c"], issue.labels
events = issue.resourcelabelevents.list(get_all=True)
seen = [(event.action, event.label["name"]) for event in events]
assert seen == [("add", "bug"), ("remove", "bug"), ("add", "a b"), ("add", "c")], seen
assert [one.iid for one in project.issues.list(labels=["a b", "c"], state="opened", get_all=True)] == [issue.iid]

# Pages: the header names the next one.
for n in range(5):
    project.issues.create({"title": f"Page {n}"})
assert len(project.issues.list(iterator=True)) == len(list(project.issues.list(iterator=True)))
group = client.groups.get(path.split("/")[0], lazy=True)
assert issue.iid in [one.iid for one in group.issues.list(state="opened", get_all=True)]

# Notes and discussions; what GitLab notes itself is marked.
note = issue.notes.create({"body": "hello"})
note.body = "hello again"
note.save()
assert issue.notes.get(note.id).body == "hello again"
notes = issue.notes.list(get_all=True)
assert [one.body for one in notes if not one.system] == ["hello again"]
assert any(one.system for one in notes)
discussion = issue.discussions.create({"body": "a question"})
discussion.notes.create({"body": "an answer"})
discussion = issue.discussions.get(discussion.id)
assert [one["body"] for one in discussion.attributes["notes"]] == ["a question", "an answer"]

# An action alone is run, and is no note.
issue.notes.create({"body": "/close"})
assert project.issues.get(issue.iid).state == "closed"
issue.state_event = "reopen"
issue.save()
note.delete()

# A merge request: once for a branch, ready when its title says so, merged with its issue.
new = {"source_branch": "work", "target_branch": "main", "title": "Draft: Walk", "description": f"Closes #{issue.iid}"}
request = project.mergerequests.create(new)
assert request.draft and request.state == "opened" and request.source_project_id == project.id
try:
    project.mergerequests.create(new)
    raise AssertionError("a second merge request was opened")
except gitlab.GitlabCreateError as error:
    assert error.response_code == 409 and f"!{request.iid}" in str(error.error_message), error
try:
    request.merge()
    raise AssertionError("a draft was merged")
except gitlab.GitlabMRClosedError:
    pass
request.title = "Walk"
request.save()
request = project.mergerequests.get(request.iid)
assert not request.draft and request.references["full"] == f"{path}!{request.iid}"
request.notes.create({"body": "looks good"})

# A thread on a line is answered and resolved.
reviewed = project.mergerequests.get(1)
[thread] = [one for one in reviewed.discussions.list(get_all=True) if not one.attributes["individual_note"]]
thread.notes.create({"body": "done"})
thread.resolved = True
thread.save()
thread = reviewed.discussions.get(thread.id)
assert [one["body"] for one in thread.attributes["notes"]] == ["Here.", "done"]
assert all(one["resolved"] for one in thread.attributes["notes"])

request.merge()
assert project.mergerequests.get(request.iid).state == "merged"
assert project.issues.get(issue.iid).state == "closed"
assert [one.iid for one in project.mergerequests.list(source_branch="work", state="all", get_all=True)] == [request.iid]
assert project.files.get("new.txt", ref="main").decode() == b"new\n"
# Issues and merge requests are numbered apart: the same number is one of each.
assert project.issues.get(request.iid).title == "Page 0" and project.mergerequests.get(issue.iid).title == reviewed.title
for missing in (lambda: project.issues.get(7), lambda: project.mergerequests.get(3)):
    try:
        missing()
        raise AssertionError("an item was found that is none")
    except gitlab.GitlabGetError as error:
        assert error.response_code == 404
print("walked")
