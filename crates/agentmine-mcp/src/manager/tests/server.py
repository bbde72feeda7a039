"""A small MCP server with bad habits, for the manager's tests.

Its first argument says how it behaves. A file `tools.json` beside it, if there is one, holds its tools.
"""
import json
import os
import signal
import sys
import time

VERSION = "1"
MODE = sys.argv[1] if len(sys.argv) > 1 else ""
HERE = os.path.dirname(os.path.abspath(__file__))


def tools():
    path = os.path.join(HERE, sys.argv[2] if len(sys.argv) > 2 else "tools.json")
    if os.path.exists(path):
        with open(path) as file:
            return json.load(file)
    names = ["crash", "family", "hang", "pid", "say", "version"]
    return {name: "Tool " + name for name in names}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(name, arguments):
    if name == "crash":
        print("out of cheese", file=sys.stderr, flush=True)
        os._exit(3)
    if name == "hang":
        time.sleep(1000)
    if name == "pid":
        return str(os.getpid())
    if name == "version":
        return VERSION
    if name == "changed":
        send({"method": "notifications/tools/list_changed"})
    if name == "family":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = os.fork()
        if child == 0:
            os.setsid()
            time.sleep(1000)
        return "%d %d" % (os.getpid(), child)
    return json.dumps(arguments)


if MODE == "crash-at-start":
    print("cannot open the database", file=sys.stderr)
    sys.exit(7)
if MODE == "silent":
    time.sleep(1000)
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if id is None:
        continue
    if method == "initialize":
        result = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "habits", "version": VERSION},
        }
    elif method == "tools/list":
        entries = [
            {"name": name, "description": text, "inputSchema": {"type": "object"}}
            for name, text in tools().items()
        ]
        result = {"tools": entries}
    elif method == "tools/call":
        text = call(message["params"]["name"], message["params"].get("arguments"))
        result = {"content": [{"type": "text", "text": text}]}
    elif method == "ping":
        result = {}
    elif MODE == "strict":
        sys.exit("unknown method")
    else:
        send({"id": id, "error": {"code": -32601, "message": "no such method"}})
        continue
    send({"id": id, "result": result})
    if MODE == "short-lived" and method == "tools/list":
        sys.exit(9)
