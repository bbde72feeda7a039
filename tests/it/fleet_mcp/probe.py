"""A small MCP server that reports where it runs, and does what a test asks for.

Speaks the handshake era over stdio. Its arguments: `--pids FILE` to write its process id to.
"""

import json
import os
import sys
import time

offered = {
    "ask": "Asks the client's model.",
    "crash": "Ends at once.",
    "echo": "Returns its input.",
    "hang": "Never answers.",
    "shrink": "Offers `echo` no more, and `late` instead.",
    "touch": "Writes a file.",
    "where": "Reports where it runs.",
}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tools():
    text = {"type": "string"}
    schema = {"type": "object", "properties": {"text": text, "marker": text}}
    return [{"name": n, "description": d, "inputSchema": schema} for n, d in offered.items()]


def readable(path):
    try:
        with open(path, "rb") as file:
            return file.read(200).decode(errors="replace").replace("\0", " ")
    except OSError as error:
        return "no: " + error.strerror


def writable(path):
    try:
        with open(path, "w") as file:
            file.write("I was here\n")
        return "yes"
    except OSError as error:
        return "no: " + error.strerror


def where(arguments):
    return json.dumps(
        {
            "cwd": os.getcwd(),
            "workspace": os.path.isdir("/workspace/project"),
            "first_process": readable("/proc/1/cmdline"),
            "token": os.environ.get("PROBE_TOKEN", "none"),
            "home": os.environ.get("HOME", "none"),
            "marker": writable(arguments.get("text", "/dev/null")),
        }
    )


def sampled(text):
    message = {"role": "user", "content": {"type": "text", "text": text}}
    params = {"messages": [message], "maxTokens": 50}
    send({"id": "ask-1", "method": "sampling/createMessage", "params": params})
    for line in sys.stdin:
        answer = json.loads(line)
        if answer.get("id") == "ask-1":
            return json.dumps(answer.get("result") or answer.get("error"))
    return "no answer"


def call(name, arguments):
    text = arguments.get("text", "")
    if name not in offered:
        return None
    if name == "crash":
        os._exit(3)
    if name == "hang":
        if text:
            writable(text)
        time.sleep(3600)
    if name == "where":
        return where(arguments)
    if name == "touch":
        return writable(text)
    if name == "ask":
        return sampled(text)
    if name == "shrink":
        del offered["echo"]
        offered["late"] = "Came late."
        send({"method": "notifications/tools/list_changed"})
        return "shrunk"
    return "echo: " + text


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "probe", "version": "1.2.3"},
        }
    if method == "tools/list":
        return {"tools": tools()}
    if method == "ping":
        return {}
    if method == "tools/call":
        text = call(params["name"], params.get("arguments") or {})
        if text is not None:
            return {"content": [{"type": "text", "text": text}]}
    return None


def main():
    if "--pids" in sys.argv:
        with open(sys.argv[sys.argv.index("--pids") + 1], "a") as file:
            file.write(f"{os.getpid()}\n")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {})
        if result is None:
            send({"id": message["id"], "error": {"code": -32601, "message": "not known"}})
        else:
            send({"id": message["id"], "result": result})


main()
