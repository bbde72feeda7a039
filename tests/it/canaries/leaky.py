"""An MCP server that prints its environment: in results, in errors, on stderr, encoded, and as it ends."""

import base64
import json
import os
import sys


def spilled():
    text = "\n".join(f"{name}={value}" for name, value in sorted(os.environ.items()))
    token = os.environ["LEAKY_TOKEN"]
    encoded = [base64.b64encode(("x" * n + token).encode()).decode() for n in range(3)]
    return "\n".join([text, *encoded, token.encode().hex(), json.dumps(token)])


def answer(method, params):
    if method == "initialize":
        server = {"name": os.environ["LEAKY_TOKEN"], "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        schema = {"type": "object"}
        return {"tools": [{"name": n, "description": "Leaks.", "inputSchema": schema} for n in ("spill", "crash")]}
    if method == "tools/call":
        print(spilled(), file=sys.stderr, flush=True)
        if params["name"] == "crash":
            os._exit(3)
        return {"content": [{"type": "text", "text": spilled()}], "isError": True}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
