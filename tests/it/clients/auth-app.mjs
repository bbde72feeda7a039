// Gets tokens as a GitHub App, and uses and revokes one: api, id, key file, repository.
import { readFileSync } from "node:fs";
import { createAppAuth } from "@octokit/auth-app";
import { request } from "@octokit/request";

const [api, appId, keyFile, repository] = process.argv.slice(2);
const [owner, repo] = repository.split("/");
const at = request.defaults({ baseUrl: api });
const auth = createAppAuth({ appId, privateKey: readFileSync(keyFile, "utf8"), request: at });

const asApp = at.defaults({ request: { hook: auth.hook } });
const { data: app } = await asApp("GET /app");
const { data: installation } = await asApp("GET /repos/{owner}/{repo}/installation", { owner, repo });
const minted = await auth({
  type: "installation",
  installationId: installation.id,
  repositoryNames: [repo],
  permissions: { issues: "write", metadata: "read" },
});
if (minted.repositorySelection !== "selected" || !(new Date(minted.expiresAt) > new Date())) {
  throw new Error(`an unexpected token: ${minted.repositorySelection} ${minted.expiresAt}`);
}
const headers = { authorization: `token ${minted.token}` };
const { data: issue } = await at("POST /repos/{owner}/{repo}/issues", { owner, repo, title: "by an App", headers });
await at("DELETE /installation/token", { headers });
const gone = await at("GET /repos/{owner}/{repo}", { owner, repo, headers }).then(() => 200, (error) => error.status);
if (gone !== 401) {
  throw new Error(`a revoked token was answered with ${gone}`);
}
console.log(app.slug, issue.user.login);
