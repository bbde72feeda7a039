# Memory, disk, processes and time: the sandbox may come to harm, the machine and the worker may not.

@limit(60)
@ruins
@off("--memory=2g")
@without("bubblewrap; memory limit")
def take_all_memory():
    """Takes more memory than its limit"""
    held = []
    for _ in range(1200):
        held.append(bytearray(b"x" * (1 << 20)))
    success("%d MB" % len(held))

@limit(60)
@ruins
@off("--memory=2g")
@without("bubblewrap; memory limit")
def take_memory_in_many_processes():
    """Takes more memory than its limit, a little in each of many processes"""
    children = []
    def child():
        held = [bytearray(b"x" * (1 << 20)) for _ in range(60)]
        time.sleep(20)
        os._exit(len(held) != 60)
    for _ in range(18):
        one = os.fork()
        if one == 0:
            child()
        children.append(one)
    end = time.time() + 12
    while time.time() < end:
        time.sleep(0.5)
        held = 0
        for one in children:
            try:
                status = open("/proc/%d/status" % one).read()
                held += int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) >> 10
            except (OSError, AttributeError):
                pass
        if held > 800:
            for one in children:
                os.kill(one, signal.SIGKILL)
            success("%d MB together" % held)

@limit(60)
@ruins
@off("--memory=2g")
@without("bubblewrap; memory limit")
def take_memory_that_is_shared():
    """Takes more memory than its limit as pages that processes share, which no process has alone"""
    held = mmap.mmap(-1, 900 << 20)
    for _ in range(2):
        os.fork()
    block = b"x" * (1 << 20)
    for _ in range(900):
        held.write(block)
    time.sleep(3)
    success("900 MB in one shared mapping")

@limit(60)
@ruins
@refused_with("ENOSYS")
@off("--memory=2g")
@without("bubblewrap; memory limit")
def take_memory_in_nameless_files():
    """Takes more memory than its limit in files that are memory, and maps none of it"""
    block = b"x" * (1 << 20)
    with open(os.memfd_create("fill"), "wb", buffering=0) as file:
        for _ in range(900):
            file.write(block)
        time.sleep(3)
        success("900 MB in a file that is memory")

@limit(60)
@ruins
@off("--memory=2g --shm-size=2g")
@without("bubblewrap; memory limit")
def take_memory_by_key():
    """Takes more memory than its limit in System V segments that no process has attached"""
    total = 0
    for _ in range(9):
        segment = call(29, 0, 100 << 20, 0o1600)
        _libc.shmat.restype = ctypes.c_void_p
        address = _libc.shmat(segment, None, 0)
        if address == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "shmat")
        ctypes.memset(address, 1, 100 << 20)
        _libc.shmdt(ctypes.c_void_p(address))
        total += 100
    time.sleep(3)
    success("%d MB in segments" % total)

@limit(60)
@ruins
@off("--memory=2g")
@without("bubblewrap; memory limit")
@weaker("bubblewrap-unprivileged landlock-unprivileged: only a cgroup counts what the kernel holds for a process")
def take_memory_in_sockets():
    """Takes more memory than its limit as data that waits in sockets"""
    held, total, block = [], 0, b"x" * 65536
    while total < 900 << 20:
        pair = socket.socketpair()
        held.append(pair)
        for one in pair:
            one.setblocking(False)
            try:
                while True:
                    total += one.send(block)
            except BlockingIOError:
                pass
    time.sleep(3)
    success("%d MB in %d sockets" % (total >> 20, len(held) * 2))

@limit(20)
@ruins
@undemonstrated("docker bubblewrap landlock: there is no guest to stop")
@weaker("landlock-unprivileged: a command can stop its guest, which alone watches the memory there")
def take_memory_while_the_guest_stands_still():
    """Stops the guest, which may watch the memory, and takes more than the limit meanwhile"""
    guest = os.getppid()
    os.kill(guest, signal.SIGSTOP)
    time.sleep(0.5)
    # For the first process of a namespace the signal has no effect.
    if open("/proc/%d/stat" % guest).read().rsplit(")", 1)[1].split()[0] != "T":
        blocked("the guest continues")
    try:
        held = [bytearray(b"x" * (1 << 20)) for _ in range(900)]
        sys.stdout.write("\nATTACK success %d MB while the guest was stalled\n" % len(held))
        sys.stdout.flush()
    finally:
        os.kill(guest, signal.SIGCONT)
    time.sleep(1)
    success("%d MB while the guest was stalled" % len(held))

@limit(60)
@ruins
@off("--pids-limit=-1")
@without("bubblewrap; process limit")
def fork_without_end():
    """Starts more processes than its limit"""
    count = 0
    try:
        while count < 400:
            if os.fork() == 0:
                time.sleep(30)
                os._exit(0)
            count += 1
    except OSError as error:
        blocked("%d processes, then %s" % (count, error.strerror))
    time.sleep(3)
    alive = 0
    for process in processes():
        try:
            alive += open("/proc/%d/stat" % process).read().rsplit(")", 1)[1].split()[1] == str(os.getpid())
        except OSError:
            pass
    if alive >= 399:
        success("%d processes" % alive)

@limit(60)
@ruins
@off("")
@refused_with("ENOSPC")
@without("bubblewrap; disk limit")
def fill_the_disk():
    """Writes more than its disk limit"""
    block = os.urandom(1 << 20)
    with open("fill", "wb", buffering=0) as file:
        for _ in range(700):
            file.write(block)
    time.sleep(5)
    if os.path.exists("fill") and os.path.getsize("fill") >= 700 << 20:
        success("700 MB with a limit of 256")

@limit(60)
@ruins
@refused_with("ENOSPC")
@off("")
@without("bubblewrap; disk limit")
def fill_the_disk_in_closed_folders():
    """Writes more than its disk limit into folders that nobody may list"""
    block = os.urandom(1 << 20)
    os.mkdir("closed")
    files = [open("closed/%d" % at, "wb", buffering=0) for at in range(7)]
    os.chmod("closed", 0)
    for file in files:
        for _ in range(100):
            file.write(block)
    time.sleep(6)
    success("700 MB with a limit of 256")

@limit(60)
@ruins
@off("")
@refused_with("ENOSPC")
@without("bubblewrap; disk limit")
def fill_the_disk_with_unlinked_files():
    """Writes more than its disk limit into files that have no name any more"""
    block = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=".", buffering=0) as file:
        for _ in range(700):
            file.write(block)
        time.sleep(6)
        success("700 MB with a limit of 256")

@limit(60)
@ruins
@refused_with("ENOSPC")
@off("")
@without("bubblewrap; disk limit")
def fill_the_disk_below_long_paths():
    """Writes more than its disk limit below a path that is too long to be named"""
    block = os.urandom(1 << 20)
    name = "d" * 200
    for _ in range(30):
        os.mkdir(name)
        os.chdir(name)
    with open("fill", "wb", buffering=0) as file:
        for _ in range(700):
            file.write(block)
    time.sleep(6)
    success("700 MB with a limit of 256")

@limit(150)
@ruins
@off("")
@refused_with("ENOSPC")
@undemonstrated("bubblewrap: it does not end in time; the kind landlock lacks the same control")
def take_all_inodes():
    """Makes more files than a repository has"""
    os.mkdir("many")
    count = 0
    for folder in range(400):
        os.mkdir("many/%d" % folder)
        for at in range(1000):
            os.close(os.open("many/%d/%d" % (folder, at), os.O_CREAT | os.O_WRONLY))
            count += 1
    time.sleep(6)
    success("%d files" % count)

@limit(30)
@ruins
@off("--shm-size=2g --memory=3g")
@without("bubblewrap; size of /tmp and /dev/shm")
@undemonstrated("landlock: it fills nothing there, since both folders are closed")
def fill_the_shared_memory():
    """Fills /dev/shm and /tmp, which are memory"""
    block = b"x" * (1 << 20)
    total = 0
    for folder in ["/dev/shm", "/tmp"]:
        if os.environ.get("BACKEND") == "landlock":
            continue
        try:
            with open(folder + "/fill", "wb", buffering=0) as file:
                for _ in range(800):
                    file.write(block)
                    total += 1
        except OSError:
            pass
    if total > 1000:
        success("%d MB" % total)

@limit(30)
@undemonstrated("docker bubblewrap landlock: only the machine's own limit of open files remains, which is no higher than the attack's")
def open_many_files():
    """Opens all files that it may"""
    held = []
    try:
        while len(held) < 200000:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error:
        blocked("%d files, then %s" % (len(held), error.strerror))
    success("%d files" % len(held))

@limit(60)
@ruins
@undemonstrated("bubblewrap landlock docker: it wants a worker that removes by recursion, and no part of one does")
def nest_folders_deeply():
    """Leaves 15,000 nested folders, which whoever removes them must not follow by recursion"""
    # From the inside out. From the outside in, Landlock would look at all folders above each new one.
    os.mkdir("d")
    for _ in range(15000):
        os.mkdir("e")
        os.rename("d", "e/d")
        os.rename("e", "d")
    blocked("the worker removes them now")

@ruins
@without("bubblewrap; removal that neither folders nor modes stop")
@undemonstrated("docker: the engine removes a container's files as root, whatever their modes are")
def leave_what_cannot_be_removed():
    """Leaves files and folders that a careless removal stops at"""
    os.makedirs("a/b/c")
    for path in ["a/b/c", "a/b", "a"]:
        os.chmod(path, 0)
    os.mkfifo("fifo")
    os.symlink("/", "root")
    os.symlink(env("BAIT_FOLDER"), "outside")
    os.symlink("loop", "loop")
    name = os.fsencode("n") + b"\xff\n\x1b[2J"
    open(name, "w").close()
    open("x" * 255, "w").close()

@limit(30)
@ruins
@undemonstrated("docker bubblewrap landlock: outside of a process namespace it could not be ended safely")
def keep_running_after_the_end():
    """Ignores all signals and starts itself again when its end comes"""
    for _ in range(20):
        if os.fork() == 0:
            os.setsid()
            for number in [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]:
                signal.signal(number, signal.SIG_IGN)
            while True:
                if os.fork() == 0:
                    time.sleep(0.05)
                else:
                    os._exit(0)
    time.sleep(1)

@without("landlock; the whole jail; +outlives")
@without("bubblewrap; process namespace; !--unshare-pid !--proc --dev-bind /proc /proc !--die-with-parent")
@undemonstrated("docker: the engine ends every process of a container together with the first")
def sleep_beyond_the_limit():
    """Ignores the end of its time"""
    done = subprocess.Popen([sys.executable, "-c", "import signal,time\nsignal.signal(15,signal.SIG_IGN)\ntime.sleep(600)"])
    blocked("left %d behind" % done.pid)
