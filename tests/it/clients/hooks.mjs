// Checks deliveries that the fake forge sent: hooks.mjs FORGE SECRET FILE, with a delivery as JSON in each line of the file:
// {event, headers, text}. GitHub's are verified by its own library, and validated against its own schemas; GitLab's are
// verified by the library of Standard Webhooks. Prints how many of each event there were.
import { verify } from "@octokit/webhooks-methods";
import Ajv from "ajv";
import addFormats from "ajv-formats";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { Webhook } from "standardwebhooks";

const [forge, secret, file] = process.argv.slice(2);
const schemas = createRequire(import.meta.url)("@octokit/webhooks-schemas");
const ajv = new Ajv({ strict: false, allErrors: true });
addFormats(ajv);
ajv.addSchema(schemas, "octokit");
const counts = {};

async function github({ event, headers, text }) {
  if (!(await verify(secret, text, headers["x-hub-signature-256"]))) {
    throw new Error(`${event}: the signature is not valid`);
  }
  const body = JSON.parse(text);
  const name = `${event}$${body.action ?? "event"}`;
  const validate = ajv.getSchema(`octokit#/definitions/${name}`);
  if (!validate) {
    throw new Error(`GitHub sends no ${name}`);
  }
  if (!validate(body)) {
    throw new Error(`${name}: ${ajv.errorsText(validate.errors)}`);
  }
  return name;
}

function gitlab({ event, headers, text }) {
  new Webhook(secret).verify(text, headers);
  return event;
}

for (const line of readFileSync(file, "utf8").split("\n").filter(Boolean)) {
  const delivery = JSON.parse(line);
  delivery.headers = Object.fromEntries(delivery.headers.map(([name, value]) => [name.toLowerCase(), value]));
  const name = await (forge === "github" ? github(delivery) : gitlab(delivery));
  counts[name] = (counts[name] ?? 0) + 1;
}
console.log(JSON.stringify(counts));
