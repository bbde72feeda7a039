# The tools that read and write files: the text editor in the sandbox, on a repository that an attacker wrote.

class Editor:
    def __init__(self):
        program = tool("mcp-server-text-editor")
        root = os.environ.get("AGENTMINE_WORKSPACE", "/workspace")
        self.child = subprocess.Popen([program, "--root", root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message):
        self.child.stdin.write((json.dumps(message) + "\n").encode())
        self.child.stdin.flush()

    def ask(self, method, parameters):
        self.send({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters})
        ready, _, _ = select.select([self.child.stdout], [], [], 8)
        if not ready:
            success("the editor hangs")
        line = self.child.stdout.readline()
        if not line:
            success("the editor ended")
        return json.loads(line)

    def call(self, **arguments):
        """The text of the result, and whether it is an error."""
        answer = self.ask("tools/call", {"name": "text_editor", "arguments": arguments})
        result = answer.get("result", {})
        text = "".join(part.get("text", "") for part in result.get("content", []))
        return text or json.dumps(answer), bool(result.get("isError", "error" in answer))

    def must_work(self):
        open("honest", "w").write("honest text\n")
        text, failed = self.call(command="view", path="honest")
        if failed or "honest text" not in text:
            cannot("the editor does not work: " + text)
        return self

def views(paths):
    editor = Editor().must_work()
    for path in paths:
        text, failed = editor.call(command="view", path=path)
        show(text[:2000])
        if not failed and ("root:x:" in text or "PATH=" in text):
            success("%r was shown" % path)

def link(name, target):
    if os.path.lexists(name):
        os.unlink(name)
    os.symlink(target, name)
    return name

def view_a_file_outside():
    """Lets the editor show a file outside of the workspace"""
    root = os.environ.get("AGENTMINE_WORKSPACE", "/workspace")
    views(["/etc/passwd", "../../etc/passwd", "../" * 20 + "etc/passwd", root + "/../etc/passwd", "/proc/self/environ",
           "/proc/self/root/etc/passwd", "/dev/fd/../../etc/passwd", "file:///etc/passwd", "~/../../etc/passwd", env("BAIT_SECRET")])

def view_through_a_link():
    """Lets the editor show a file outside through links in the repository"""
    os.makedirs("inner", exist_ok=True)
    views([link("a", "/etc/passwd"), link("b", "/etc") + "/passwd", link("c", "../../etc/passwd"), link("inner/d", "../a"),
           link("e", "/proc/self/environ"), link("f", "/proc/self/cwd/../../etc/passwd"), link("g", env("BAIT_SECRET"))])

def write_outside():
    """Lets the editor write outside of the workspace"""
    editor = Editor().must_work()
    folder = "/tmp" if os.environ.get("BACKEND") != "landlock" else env("BAIT_MARKER")
    for path in [folder + "/made", "../../../../../.." + folder + "/made", link("way", folder) + "/made", link("made", folder + "/made")]:
        editor.call(command="create", path=path, file_text="x")
        if os.path.exists(folder + "/made"):
            os.unlink(folder + "/made")
            success("%r was written" % path)

def change_through_a_link():
    """Lets the editor change and undo a file outside through a link"""
    editor = Editor().must_work()
    if os.environ.get("BACKEND") == "landlock":
        target = env("BAIT_SECRET")
    else:
        target = "/tmp/target"
        open(target, "w").write("before\n")
    for name in [link("h", target), "/proc/self/cwd/h"]:
        editor.call(command="str_replace", path=name, old_str="before", new_str="after")
        editor.call(command="insert", path=name, insert_line=0, new_str="after")
        editor.call(command="undo_edit", path=name)
    try:
        if "after" in open(target).read():
            success("the file was changed")
    except OSError:
        pass

@limit(40)
def swap_a_folder_for_a_link():
    """Swaps a folder for a link while the editor looks at it"""
    editor = Editor().must_work()
    os.makedirs("real", exist_ok=True)
    open("real/passwd", "w").write("honest\n")
    link("false", "/etc")
    stop = []
    def swap():
        while not stop:
            try:
                call(316, -100, b"real", -100, b"false", 2)
            except OSError:
                pass
    thread = threading.Thread(target=swap, daemon=True)
    thread.start()
    end, shown = time.time() + 10, 0
    while time.time() < end:
        text, failed = editor.call(command="view", path="real/passwd")
        shown += "honest" in text
        if not failed and "root:x:" in text:
            success("after %d views" % shown)
    stop.append(1)
    if not shown:
        cannot("the honest file was never shown")
    blocked("%d views" % shown)

def wait_on_a_pipe():
    """Makes the editor wait for a pipe or a device"""
    if not os.path.lexists("pipe"):
        os.mkfifo("pipe")
    editor = Editor().must_work()
    for path in ["pipe", link("zero", "/dev/zero"), link("tty", "/dev/tty"), link("circle", "circle"), "."]:
        for command in [dict(command="view"), dict(command="create", file_text="x"), dict(command="str_replace", old_str="a", new_str="b"),
                        dict(command="insert", insert_line=0, new_str="x")]:
            editor.call(path=path, **command)
    editor.must_work()

@limit(40)
def view_something_huge():
    """Makes the editor read a file of gigabytes and a line without an end"""
    with open("sparse", "wb") as file:
        file.truncate(8 << 30)
    open("line", "w").write("x" * (30 << 20))
    editor = Editor().must_work()
    for path in ["sparse", "line"]:
        text, _ = editor.call(command="view", path=path)
        if len(text) > 1 << 20:
            success("%d bytes of %s" % (len(text), path))
    os.unlink("sparse")
    os.unlink("line")

def name_odd_paths():
    """Names paths that confuse the editor or whoever reads its answers"""
    editor = Editor().must_work()
    for path in ["a\0b", "", "x" * 5000, "\n", "\x1b[2J", "a/" * 3000, "\u202e", "-", "--root=/", "con:", "%2e%2e/%2e%2e/etc/passwd", "\\..\\..\\etc\\passwd"]:
        text, _ = editor.call(command="view", path=path)
        if "root:x:" in text:
            success(repr(path))
        if "\x1b" in text:
            success("control characters in the answer")
    editor.must_work()

@limit(40)
def send_odd_requests():
    """Sends requests that are no requests"""
    editor = Editor().must_work()
    for data in [b"{}\n", b"[]\n", b"null\n", b"\xff\xfe\n", b"x" * 100000 + b"\n", b"[" * 50000 + b"\n", b'{"jsonrpc":"2.0","id":{},"method":"tools/call"}\n',
                 b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"../x","arguments":[]}}\n']:
        try:
            editor.child.stdin.write(data)
            editor.child.stdin.flush()
        except OSError:
            success("the editor ended after %r" % data[:20])
    time.sleep(1)
    if editor.child.poll() is not None:
        success("the editor ended: %s" % editor.child.returncode)
