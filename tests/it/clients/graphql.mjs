// Validates texts for GitHub's GraphQL API with its public schema: a file with a JSON object of texts by name.
import { readFileSync } from "node:fs";
import { validate } from "@octokit/graphql-schema";

const texts = JSON.parse(readFileSync(process.argv[2], "utf8"));
const faults = Object.entries(texts).flatMap(([name, text]) => validate(text).map((error) => `${name}: ${error.message}`));
if (faults.length > 0) {
  throw new Error(faults.join("\n"));
}
console.log(Object.keys(texts).length);
