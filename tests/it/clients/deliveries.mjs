// Prints GitHub's own examples of the deliveries that the documentation asks people to subscribe to, as signed lines of
// JSON: deliveries.mjs SECRET REPOSITORY ID. Each is about that repository.
import { sign } from "@octokit/webhooks-methods";
import { createRequire } from "node:module";

const events = createRequire(import.meta.url)("@octokit/webhooks-examples");
const [secret, repository, id] = process.argv.slice(2);
const subscribed = [
  "issues",
  "pull_request",
  "issue_comment",
  "pull_request_review",
  "pull_request_review_comment",
  "check_run",
  "status",
];

for (const { name, examples } of events) {
  if (!subscribed.includes(name)) {
    continue;
  }
  for (const example of examples) {
    const about = { ...example.repository, id: Number(id), full_name: repository };
    const body = JSON.stringify({ ...example, repository: about });
    console.log(JSON.stringify({ event: name, body, signature: await sign(secret, body) }));
  }
}
