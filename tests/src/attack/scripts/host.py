# Files, processes and sockets of the machine, and of another task's sandbox.

@off("-v $BAIT_FOLDER:$BAIT_FOLDER")
@without("bubblewrap; mounts; --bind $BAIT_FOLDER $BAIT_FOLDER")
def read_a_file():
    """Reads a file of the machine"""
    show(read(env("BAIT_SECRET")))

@off("-v $BAIT_TMP:$BAIT_TMP")
@without("bubblewrap; mounts; --bind $BAIT_TMP $BAIT_TMP")
def read_the_machines_temporary_files():
    """Reads and changes a file in the machine's /tmp"""
    path = env("BAIT_TMP")
    try:
        show(read(path))
    finally:
        with open(path, "wb") as file:
            file.write(b"changed")
        if os.path.getsize(path) == 7 and os.environ.get("BACKEND") == "landlock":
            success("a file in the machine's /tmp was changed")

@off("-v $BAIT_FOLDER:$BAIT_FOLDER")
@without("bubblewrap; mounts; --bind $BAIT_FOLDER $BAIT_FOLDER")
def write_a_file():
    """Writes a file on the machine, in a folder that anyone may write"""
    with open(env("BAIT_MARKER") + "/written", "w") as file:
        file.write("x")

@off("-v $BAIT_FOLDER:$BAIT_FOLDER")
@without("bubblewrap; mounts; --bind $BAIT_FOLDER $BAIT_FOLDER")
def make_a_folder():
    """Makes a folder on the machine, in a folder that anyone may write"""
    os.mkdir(env("BAIT_MARKER") + "/folder")

@refused_with("EXDEV")
@off("-v $BAIT_FOLDER:$BAIT_FOLDER --user=0 --workdir=$BAIT_FOLDER")
@without("bubblewrap; mounts; --bind $BAIT_FOLDER $BAIT_FOLDER --chdir $BAIT_FOLDER")
def link_a_file_in():
    """Links a file of the machine into the project and reads it there"""
    os.link(env("BAIT_SECRET"), "linked")
    show(read("linked"))

@refused_with("EXDEV")
@off("-v $BAIT_FOLDER:$BAIT_FOLDER --user=0 --workdir=$BAIT_FOLDER")
@without("bubblewrap; mounts; --bind $BAIT_FOLDER $BAIT_FOLDER --chdir $BAIT_FOLDER")
def rename_a_file_in():
    """Moves a file of the machine into the project"""
    os.rename(env("BAIT_SECRET"), "moved")
    show(read("moved"))

@off("-v $BAIT_FOLDER:$BAIT_FOLDER --user=0")
@without("bubblewrap; mounts; --bind $BAIT_FOLDER $BAIT_FOLDER")
def remove_a_file():
    """Removes a file of the machine"""
    os.unlink(env("BAIT_SECRET"))

@off("-v $BAIT_FOLDER:$BAIT_FOLDER --user=0")
@without("bubblewrap; mounts; --bind $BAIT_FOLDER $BAIT_FOLDER")
def truncate_a_file():
    """Empties a file of the machine without opening it"""
    os.truncate(env("BAIT_SECRET"), 0)

@off("-v $BAIT_FOLDER:$BAIT_FOLDER")
@without("bubblewrap; mounts; --bind $BAIT_FOLDER $BAIT_FOLDER")
def read_through_a_symlink():
    """Reads a file of the machine through links in the project"""
    if os.path.lexists("way"):
        os.unlink("way")
    os.symlink(env("BAIT_FOLDER"), "way")
    show(read("way/secret"))

@weaker("landlock: Landlock has no right for modes, owners and times of files outside")
@off("-v $BAIT_FOLDER:$BAIT_FOLDER --user=0")
@without("bubblewrap; mounts; --bind $BAIT_FOLDER $BAIT_FOLDER")
def change_the_mode_of_a_file():
    """Opens a file of the machine to everybody"""
    os.chmod(env("BAIT_SECRET"), 0o777)

@weaker("landlock: Landlock has no right for modes, owners and times of files outside")
@off("-v $BAIT_FOLDER:$BAIT_FOLDER --user=0")
@without("bubblewrap; mounts; --bind $BAIT_FOLDER $BAIT_FOLDER")
def change_the_time_of_a_file():
    """Changes the time of a file of the machine, so that builds and backups miss it"""
    path = env("BAIT_SECRET")
    os.utime(path, (1, 1))
    if os.stat(path).st_mtime == 1:
        success("the time is changed")

@refused_with("EOPNOTSUPP")
@weaker("landlock: Landlock has no right for modes, owners and times of files outside")
@off("--volume=$BAIT_FOLDER:$BAIT_FOLDER --user=0")
@without("bubblewrap; mounts; --bind $BAIT_FOLDER $BAIT_FOLDER")
def set_an_attribute_of_a_file():
    """Sets an extended attribute of a file of the machine"""
    os.setxattr(env("BAIT_SECRET"), "user.attack", b"x")
    success("the attribute is set")

@weaker("landlock: Landlock has no right for watching files outside")
@off("-v $BAIT_FOLDER:$BAIT_FOLDER")
@without("bubblewrap; mounts; --bind $BAIT_FOLDER $BAIT_FOLDER")
def watch_a_file():
    """Watches what others do with a file of the machine"""
    watch = call(253)
    call(254, watch, env("BAIT_SECRET").encode(), 0xfff)
    success("the file is watched")

@off("--pid=host --user=0 --cap-add=SYS_PTRACE --cap-add=KILL --cap-add=SYS_NICE --security-opt=seccomp=unconfined")
@without("root bubblewrap; process namespace and capabilities; !--unshare-pid !--unshare-user !--uid !--gid !--proc --dev-bind /proc /proc --cap-add CAP_SYS_PTRACE")
def read_through_other_processes():
    """Reads a file of the machine through the root and the folder of each process"""
    secret = env("BAIT_SECRET")
    for process in processes():
        for way in ["root", "cwd", "cwd/../../../../../../.."]:
            try:
                show(read("/proc/%d/%s%s" % (process, way, secret)))
                success("the secret, through process %d" % process)
            except OSError:
                pass

@off("--pid=host --user=0 --cap-add=SYS_PTRACE --cap-add=KILL --cap-add=SYS_NICE --security-opt=seccomp=unconfined")
@without("root bubblewrap; process namespace and capabilities; !--unshare-pid !--unshare-user !--uid !--gid !--proc --dev-bind /proc /proc --cap-add CAP_SYS_PTRACE")
def read_environments():
    """Reads the environment of each process"""
    for process in processes():
        try:
            show(read("/proc/%d/environ" % process, 100000))
        except OSError:
            pass

@weaker("landlock: without namespaces the machine's list of processes can be read")
@off("--pid=host")
@without("bubblewrap; process namespace; !--unshare-pid !--proc --dev-bind /proc /proc")
def read_command_lines():
    """Reads the command line of each process"""
    for process in processes():
        try:
            show(read("/proc/%d/cmdline" % process, 100000))
        except OSError:
            pass

@off("--pid=host --user=0 --cap-add=SYS_PTRACE --cap-add=KILL --cap-add=SYS_NICE --security-opt=seccomp=unconfined")
@without("root bubblewrap; process namespace and capabilities; !--unshare-pid !--unshare-user !--uid !--gid !--proc --dev-bind /proc /proc --cap-add CAP_SYS_PTRACE")
def read_the_memory_of_a_process():
    """Reads the memory of a process of the machine through /proc"""
    for process in [number("BAIT_PID"), number("WORKER_PID")]:
        if os.environ.get("BACKEND") != "landlock" and not os.path.exists("/proc/%d" % process):
            continue
        try:
            os.close(os.open("/proc/%d/mem" % process, os.O_RDWR))
            success("the memory of process %d is open" % process)
        except OSError:
            pass

def same(process):
    """Whether this number is the machine's process, and not one of the sandbox with the same number."""
    try:
        with open("/proc/%d/cmdline" % process) as file:
            return "canary" in file.read() or process == number("WORKER_PID")
    except OSError:
        return False

@off("--pid=host --user=0 --cap-add=SYS_PTRACE --cap-add=KILL --cap-add=SYS_NICE --security-opt=seccomp=unconfined")
@without("root bubblewrap; process namespace and capabilities; !--unshare-pid !--unshare-user !--uid !--gid !--proc --dev-bind /proc /proc --cap-add CAP_SYS_PTRACE")
def trace_a_process():
    """Attaches to a process of the machine"""
    process = number("BAIT_PID")
    if os.environ.get("BACKEND") != "landlock" and not same(process):
        blocked("it is not to be seen")
    call(101, 16, process, 0, 0)
    success("attached")

@off("--pid=host --user=0 --cap-add=SYS_PTRACE --security-opt=seccomp=unconfined")
@without("root bubblewrap; process namespace and capabilities; !--unshare-pid !--unshare-user !--uid !--gid !--proc --dev-bind /proc /proc --cap-add CAP_SYS_PTRACE")
def copy_memory_of_a_process():
    """Copies the memory of a process of the machine"""
    process = number("BAIT_PID")
    if os.environ.get("BACKEND") != "landlock" and not same(process):
        blocked("it is not to be seen")
    buffer = ctypes.create_string_buffer(8)
    local = struct.pack("<QQ", ctypes.addressof(buffer), 8)
    try:
        call(310, process, local, 1, struct.pack("<QQ", 0x1000, 8), 1, 0)
    except OSError as error:
        # Nothing is at that address; whether it may look is decided before.
        if error.errno != errno.EFAULT:
            raise
    success("copied")

@off("--pid=host --user=0 --cap-add=SYS_PTRACE --cap-add=KILL --cap-add=SYS_NICE --security-opt=seccomp=unconfined")
@without("root bubblewrap; process namespace and capabilities; !--unshare-pid !--unshare-user !--uid !--gid !--proc --dev-bind /proc /proc --cap-add CAP_SYS_PTRACE")
def take_a_descriptor_of_a_process():
    """Takes an open file of a process of the machine"""
    process = number("BAIT_PID")
    if os.environ.get("BACKEND") != "landlock" and not same(process):
        blocked("it is not to be seen")
    handle = call(434, process, 0)
    call(438, handle, 0, 0)
    success("its standard input is ours")

@off("--pid=host --user=0 --cap-add=SYS_PTRACE --cap-add=KILL --cap-add=SYS_NICE --security-opt=seccomp=unconfined")
@without("bubblewrap; process namespace; !--unshare-pid !--proc --dev-bind /proc /proc")
def end_a_process():
    """Ends a process of the machine"""
    os.kill(number("BAIT_PID"), signal.SIGKILL)

@off("--pid=host --user=0")
@without("bubblewrap; process namespace; !--unshare-pid !--proc --dev-bind /proc /proc")
def stop_the_worker():
    """Sends a signal to the worker"""
    process = number("WORKER_PID")
    if os.environ.get("BACKEND") != "landlock" and not os.path.exists("/proc/%d" % process):
        blocked("it is not to be seen")
    # Another process of the sandbox may have the same number.
    worker = os.environ.get("BACKEND") == "landlock" or b"attacks" in read("/proc/%d/cmdline" % process)
    os.kill(process, signal.SIGCONT)
    if worker:
        success("a signal was sent")

@ruins
@without("bubblewrap; process namespace; !--unshare-pid !--proc --dev-bind /proc /proc +own-user")
@without("landlock; the whole jail; +own-user")
@undemonstrated("docker: it would end every process of the machine")
def end_everything():
    """Ends every process that it may"""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.kill(-1, signal.SIGTERM)

@weaker("landlock: the kernel lets a user change limits and priorities of all his processes")
@off("--pid=host --user=0 --cap-add=SYS_PTRACE --cap-add=KILL --cap-add=SYS_NICE --security-opt=seccomp=unconfined")
@without("bubblewrap; process namespace; !--unshare-pid !--proc --dev-bind /proc /proc")
def limit_a_process():
    """Sets the limits of a process of the machine"""
    process = number("BAIT_PID")
    if os.environ.get("BACKEND") != "landlock" and not same(process):
        blocked("it is not to be seen")
    call(302, process, 7, struct.pack("<QQ", 100, 100), 0)
    success("its number of open files is limited")

@weaker("landlock: the kernel lets a user change limits and priorities of all his processes")
@off("--pid=host --user=0 --cap-add=SYS_PTRACE --cap-add=KILL --cap-add=SYS_NICE --security-opt=seccomp=unconfined")
@without("bubblewrap; process namespace; !--unshare-pid !--proc --dev-bind /proc /proc")
def slow_a_process_down():
    """Lowers the priority of a process of the machine"""
    process = number("BAIT_PID")
    if os.environ.get("BACKEND") != "landlock" and not same(process):
        blocked("it is not to be seen")
    os.setpriority(os.PRIO_PROCESS, process, 19)
    success("its priority is lower")

@off("--ipc=host --user=0")
@without("bubblewrap; namespace of shared memory; !--unshare-ipc")
def write_shared_memory():
    """Writes System V shared memory of the machine, which is found by a key and not in a folder"""
    identity = call(29, number("BAIT_SHM"), 0, 0)
    _libc.shmat.restype = ctypes.c_void_p
    memory = _libc.shmat(ctypes.c_int(identity), None, 0)
    if memory in (None, 2 ** 64 - 1):
        raise OSError(ctypes.get_errno(), "shmat")
    ctypes.memset(memory, 1, 1)

@off("--ipc=host --user=0")
@without("bubblewrap; namespace of shared memory; !--unshare-ipc")
def find_shared_memory():
    """Looks for System V shared memory and queues of the machine"""
    found = []
    # By number, and by place in the kernel's list: MSG_STAT and SHM_STAT. Places are used in turns, so the last one is
    # requested: MSG_INFO and SHM_INFO.
    last = max(call(control, 0, command, ctypes.create_string_buffer(256)) for control, command in [(71, 12), (31, 14)])
    for at in range(max(64, last + 1)):
        for control, command in [(71, 2), (71, 11), (31, 2), (31, 13)]:
            try:
                call(control, at, command, ctypes.create_string_buffer(256))
                found.append((control, at))
            except OSError:
                pass
    if found:
        success("%d segments or queues of the machine can be read" % len(found))

@off("--ipc=host --user=0")
@without("bubblewrap; namespace of shared memory; !--unshare-ipc")
def write_a_message_queue():
    """Sends a message into a POSIX queue of the machine, which no folder leads to"""
    queue = call(240, env("BAIT_QUEUE")[1:].encode(), os.O_WRONLY | os.O_NONBLOCK, 0, None)
    call(242, queue, b"reached", 7, 0, None)

@off("--volume=/dev/pts:/dev/pts")
@without("bubblewrap; devices of its own; !--dev --dev-bind /dev /dev")
def write_to_terminals():
    """Writes to the terminals of people on the machine"""
    if os.environ.get("BACKEND") != "landlock":
        for path in glob.glob("/dev/pts/[0-9]*"):
            success(path + " is here")
        return
    for path in glob.glob("/dev/pts/[0-9]*") + ["/dev/tty", "/dev/console", "/dev/ptmx"]:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NOCTTY))
            success(path + " is open")
        except OSError:
            pass

@off("--volume=$NEIGHBOUR:$NEIGHBOUR --user=0")
@without("bubblewrap; mounts; --bind $NEIGHBOUR $NEIGHBOUR")
def read_a_neighbours_files():
    """Reads the files of another task's sandbox"""
    for path in glob.glob(env("NEIGHBOUR") + "/project/*") + glob.glob("/proc/*/root/workspace/project/neighbour"):
        try:
            show(read(path))
        except OSError:
            pass
    show(read(env("NEIGHBOUR") + "/project/neighbour"))

@off("--volume=$NEIGHBOUR:$NEIGHBOUR --user=0")
@without("bubblewrap; mounts; --bind $NEIGHBOUR $NEIGHBOUR")
def write_a_neighbours_files():
    """Writes into the folder of another task's sandbox"""
    folder = env("NEIGHBOUR")
    if os.path.realpath(folder) == os.path.realpath(os.environ.get("AGENTMINE_WORKSPACE", "/workspace")):
        blocked("its folder is not to be seen")
    with open(folder + "/project/neighbour", "w") as file:
        file.write("x")
    success("the neighbour's file was written")

@off("--volume=/var/tmp:/var/tmp")
@without("bubblewrap; mounts; --bind /var/tmp /var/tmp")
def read_another_sandboxs_records():
    """Reads the worker's records of its sandboxes"""
    root = os.environ.get("AGENTMINE_WORKSPACE", "/workspace")
    folder = os.path.dirname(os.path.dirname(root))
    if os.environ.get("BACKEND") != "landlock":
        for path in glob.glob("/var/tmp/agentmine-attacks-*") + glob.glob("/root/.local/state/agentmine/*"):
            success(path)
        return
    names = os.listdir(folder)
    success("%d sandboxes are listed" % len(names))

@refused_with("EXDEV", "ETXTBSY")
@off("--volume=$PROGRAMS:/opt/agentmine --env=PATH=/opt/agentmine:/usr/bin:/bin --user=0")
@without("bubblewrap; read-only programs; --bind $PROGRAMS /opt/agentmine")
def change_the_guests_program():
    """Replaces a program that the next sandbox will start"""
    folder = os.path.dirname(tool("agentmine-guest"))
    with open("replacement", "w") as file:
        file.write("x")
    def open_it():
        # A program that runs cannot be written in any case, but the one beside it can.
        with open(folder + "/mcp-server-text-editor", "ab"):
            success("the program can be written")
    each([open_it, lambda: os.rename("replacement", folder + "/agentmine-guest"), lambda: os.unlink(folder + "/agentmine-guest")])
    success("the program was changed")

@off("--user=0")
@without("bubblewrap; read-only root; !--remount-ro")
@undemonstrated("landlock: the system's files belong to root")
def change_system_files():
    """Writes where the next sandbox or the machine's users would run it"""
    each([lambda path=path: (open(path, "a").close(), success(path + " can be written"))
          for path in ["/usr/bin/git", "/etc/passwd", "/etc/ld.so.preload", "/usr/lib/os-release", "/etc/profile",
                       "/opt/agentmine/x", "/root/.bashrc", "/var/spool/cron/x", "/etc/cron.d/x"]])
