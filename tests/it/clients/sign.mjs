// Signs a delivery: github SECRET BODY, or gitlab TOKEN ID SECONDS BODY.
import { sign, verify } from "@octokit/webhooks-methods";
import { Webhook } from "standardwebhooks";

const [forge, secret, ...rest] = process.argv.slice(2);
if (forge === "github") {
  const signature = await sign(secret, rest[0]);
  if (!(await verify(secret, rest[0], signature))) {
    throw new Error("it does not verify what it signed");
  }
  console.log(signature);
} else {
  const [id, seconds, body] = rest;
  console.log(new Webhook(secret).sign(id, new Date(Number(seconds) * 1000), body));
}
