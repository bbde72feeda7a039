#!/usr/bin/python3
# A guest that an attacker controls: it says a proper hello, waits for the first request, and then does MODE.
import hashlib, hmac, json, os, struct, sys, time

MODE, VERSION = "@MODE@", @VERSION@
DATA, WINDOW, PING, AWAY = 0, 1, 2, 3
SYN, ACK, FIN, RST = 1, 2, 4, 8
END = time.time() + 12
output = sys.stdout.buffer

# Since version 3 both directions are sealed. An attacker who is the guest has the key.
SEALED = VERSION >= 3
KEY = b""
count = 0

def exactly(size):
    data = b""
    while len(data) < size:
        part = os.read(0, size - len(data))
        if not part:
            sys.exit(0)
        data += part
    return data

def send(data):
    global count
    if not SEALED:
        output.write(data)
    else:
        for at in range(0, len(data), 65536):
            part = data[at:at + 65536]
            tag = hmac.new(KEY, b"g" + struct.pack(">Q", count) + part, hashlib.sha256).digest()[:16]
            output.write(struct.pack(">I", len(part)) + part + tag)
            count += 1
    output.flush()

def frame(kind, flags, stream, length, data=b""):
    return struct.pack(">BBHII", 0, kind, flags, stream, length) + data

def hello():
    body = json.dumps({"version": VERSION, "git_port": 1, "web_port": 2, "root": os.getcwd(),
                       "jail": {"landlock": "full", "seccomp": True}}).encode()
    send(b"AGMGUEST" + struct.pack(">I", len(body)) + body)

def header(stream, kind="git"):
    body = json.dumps({"kind": kind}).encode()
    body = struct.pack(">I", len(body)) + body
    return frame(DATA, SYN, stream, len(body), body)

def first_request():
    head = exactly(struct.unpack(">I", exactly(4))[0] + 16)[:12] if SEALED else exactly(12)
    return struct.unpack(">BBHII", head)[3]

def forever(data):
    while time.time() < END:
        send(data)

if SEALED:
    KEY = exactly(32)
if MODE == "a_hello_without_end":
    send(b"AGMGUEST" + struct.pack(">I", 0xffffffff))
    forever(b"x" * 65536)
elif MODE == "a_hello_of_garbage":
    send(b"AGMGUEST" + struct.pack(">I", 60000) + b"[" * 60000)
    forever(b"[" * 65536)
else:
    hello()
    stream = first_request()
    if MODE == "random_bytes":
        while time.time() < END:
            send(os.urandom(65536))
    elif MODE == "random_frames":
        import random
        random.seed(7)
        while time.time() < END:
            data = os.urandom(random.randrange(50))
            send(frame(random.randrange(5), random.randrange(16), random.randrange(12), len(data), data))
    elif MODE == "streams_without_end":
        number = 2
        while time.time() < END:
            send(b"".join(header(number + 2 * at) for at in range(200)))
            number += 400
    elif MODE == "empty_streams_without_end":
        number = 2
        while time.time() < END:
            send(b"".join(frame(WINDOW, SYN, number + 2 * at, 0) for at in range(500)))
            number += 1000
    elif MODE == "data_of_unknown_streams":
        forever(b"".join(frame(DATA, 0, 1000 + 2 * at, 100, b"x" * 100) for at in range(100)))
    elif MODE == "more_than_the_window":
        send(header(2))
        forever(frame(DATA, 0, 2, 60000, b"x" * 60000))
    elif MODE == "single_bytes_on_many_streams":
        send(b"".join(header(2 * at) for at in range(1, 100)))
        forever(b"".join(frame(DATA, 0, 2 * at, 1, b"x") for at in range(1, 100)) * 20)
    elif MODE == "empty_frames":
        send(b"".join(header(2 * at) for at in range(1, 100)))
        forever(b"".join(frame(DATA, 0, 2 * at, 0) for at in range(1, 100)) * 20)
    elif MODE == "pings_without_end":
        forever(b"".join(frame(PING, SYN, 0, at) for at in range(1000)))
    elif MODE == "windows_that_overflow":
        forever(frame(WINDOW, 0, stream, 0xffffffff) * 500)
    elif MODE == "a_frame_of_four_gigabytes":
        send(frame(DATA, ACK, stream, 0xffffffff))
        forever(b"x" * 65536)
    elif MODE == "a_reply_without_end":
        send(frame(DATA, ACK, stream, 4, struct.pack(">I", 0xfffffff0)))
        forever(frame(DATA, 0, stream, 1000, b"x" * 1000))
    elif MODE == "a_reply_of_garbage":
        body = b"{" * 60000
        send(frame(DATA, ACK, stream, 4 + len(body), struct.pack(">I", len(body)) + body))
        forever(frame(DATA, 0, stream, 1000, b"{" * 1000))
    elif MODE == "a_result_larger_than_its_limit":
        body = json.dumps({"exit_code": 0, "timed_out": False, "duration_ms": 1, "stdout_len": 1 << 62, "stderr_len": 1 << 62,
                           "stdout": {"head": 1 << 62, "tail": 1 << 62, "left_out": 0}, "ok": {}}).encode()
        send(frame(DATA, ACK, stream, 4 + len(body), struct.pack(">I", len(body)) + body))
        forever(frame(DATA, 0, stream, 1000, b"x" * 1000))
    elif MODE == "silence":
        time.sleep(12)
    elif MODE == "goodbye":
        send(frame(AWAY, 0, 0, 2))
        time.sleep(2)
