#!/usr/bin/python3
# An editor without a folder that it stays in: any path that its user may open, of any size and kind.
import json, sys

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    wanted = asked["params"].get("arguments", {})
    text, failed = "", False
    try:
        path, command = wanted.get("path"), wanted.get("command")
        if command == "view":
            text = open(path).read()
        elif command == "create":
            open(path, "w").write(wanted["file_text"])
        elif command == "insert":
            before = open(path).read()
            open(path, "w").write(wanted["new_str"] + before)
        elif command == "str_replace":
            before = open(path).read()
            open(path, "w").write(before.replace(wanted["old_str"], wanted["new_str"]))
    except (OSError, ValueError) as error:
        text, failed = "%s: %s" % (wanted.get("path"), error), True
    answer = {"content": [{"type": "text", "text": text}], "isError": failed}
    # Control characters go through as they are in the model's text, which is JSON of its own.
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
