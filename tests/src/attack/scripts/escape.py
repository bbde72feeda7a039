# System calls and devices that lead out of a sandbox.

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWPID = 0x20000, 0x10000000, 0x40000000, 0x20000000

@off("--cap-add=SYS_ADMIN --user=0 --security-opt=seccomp=unconfined --security-opt=apparmor=unconfined")
@without("bubblewrap; filter of system calls and capabilities; !--uid !--gid --uid 0 --gid 0 --cap-add CAP_SYS_ADMIN")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def mount_tmpfs():
    """Mounts a separate file system over a system folder"""
    call(165, b"none", b"/usr", b"tmpfs", 0, None)
    success("a file system is mounted on /usr")

@off("--cap-add=SYS_ADMIN --user=0 --security-opt=seccomp=unconfined --security-opt=apparmor=unconfined")
@without("bubblewrap; filter of system calls and capabilities; !--uid !--gid --uid 0 --gid 0 --cap-add CAP_SYS_ADMIN")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def mount_through_the_new_calls():
    """Makes a file system with fsopen, which old filters do not know"""
    call(430, b"tmpfs", 0)
    success("fsopen")

@off("--cap-add=SYS_ADMIN --user=0 --security-opt=seccomp=unconfined")
@without("bubblewrap; filter of system calls and capabilities; !--uid !--gid --uid 0 --gid 0 --cap-add CAP_SYS_ADMIN")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def clone_the_mount_tree():
    """Copies all mounts with open_tree, to change them in private"""
    call(428, -100, b"/", 1)
    success("open_tree")

@off("--security-opt=seccomp=unconfined")
@without("bubblewrap; filter of system calls")
def unshare_a_user_namespace():
    """Becomes root in a user namespace, where more of the kernel can be reached"""
    call(272, CLONE_NEWUSER)
    success("a user namespace")

@off("--cap-add=SYS_ADMIN --user=0 --security-opt=seccomp=unconfined")
@without("bubblewrap; filter of system calls and capabilities; !--uid !--gid --uid 0 --gid 0 --cap-add CAP_SYS_ADMIN")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def unshare_a_mount_namespace():
    """Leaves the sandbox's mount namespace"""
    call(272, CLONE_NEWNS)
    success("a mount namespace")

@off("--security-opt=seccomp=unconfined")
@without("bubblewrap; filter of system calls")
def clone_into_a_user_namespace():
    """Starts a process in a user namespace with clone"""
    child = call(56, CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    success("a process in a user namespace")

@refused_with("ENOSYS")
@off("--security-opt=seccomp=unconfined")
@without("bubblewrap; filter of system calls")
def clone3_into_a_user_namespace():
    """Starts a process in a user namespace with clone3, whose flags a filter cannot read"""
    arguments = struct.pack("<11Q", CLONE_NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0)
    child = call(435, arguments, len(arguments))
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    success("a process in a user namespace")

@off("--cap-add=SYS_ADMIN --cap-add=SYS_PTRACE --cap-add=SYS_CHROOT --user=0 --pid=host --security-opt=seccomp=unconfined")
@without("bubblewrap; filter of system calls and capabilities; !--uid !--gid --uid 0 --gid 0 --cap-add CAP_SYS_ADMIN --cap-add CAP_SYS_CHROOT")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def enter_the_namespaces_of_another_process():
    """Enters a namespace of another process, of the first one that it sees if it can"""
    last = OSError(errno.ESRCH, "no process")
    for process in sorted(processes()):
        for name in ["mnt", "user", "net", "pid"]:
            try:
                with open("/proc/%d/ns/%s" % (process, name)) as file:
                    call(308, file.fileno(), 0)
                    success("in the %s namespace of process %d" % (name, process))
            except OSError as error:
                last = error
    raise last

@off("--cap-add=SYS_ADMIN --user=0 --security-opt=seccomp=unconfined")
@without("root bubblewrap; filter of system calls and capabilities; !--unshare-user !--uid !--gid --cap-add CAP_BPF")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def load_a_bpf_program():
    """Makes a BPF map, the first step of many kernel exploits"""
    call(321, 0, struct.pack("<IIII", 2, 4, 4, 1) + bytes(112), 128)
    success("a BPF map")

@off("--cap-add=SYS_ADMIN --user=0 --security-opt=seccomp=unconfined")
@without("root bubblewrap; filter of system calls and capabilities; !--unshare-user !--uid !--gid --cap-add CAP_PERFMON")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def open_perf_events():
    """Watches the machine with perf_event_open"""
    attributes = bytearray(128)
    struct.pack_into("<IIQ", attributes, 0, 1, 128, 0)
    call(298, bytes(attributes), 0, -1, -1, 0)
    success("a performance counter")

@off("--security-opt=seccomp=unconfined")
@without("bubblewrap; filter of system calls")
def set_up_io_uring():
    """Makes an io_uring, whose requests no filter sees"""
    call(425, 1, ctypes.create_string_buffer(200))
    success("an io_uring")

@off("--security-opt=seccomp=unconfined")
@without("bubblewrap; filter of system calls")
def open_a_vsock():
    """Talks to the hypervisor over vsock, which no network namespace confines"""
    socket.socket(40, socket.SOCK_STREAM).close()
    success("a vsock")

@off("--security-opt=seccomp=unconfined")
@without("bubblewrap; filter of system calls")
def open_the_kernels_crypto():
    """Reaches the kernel's crypto drivers through AF_ALG"""
    socket.socket(38, socket.SOCK_SEQPACKET).close()
    success("an AF_ALG socket")

@off("--cap-add=NET_RAW --user=0")
@without("bubblewrap; capabilities; !--uid !--gid --uid 0 --gid 0 --cap-add CAP_NET_RAW")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def open_a_packet_socket():
    """Reads and forges frames with AF_PACKET"""
    socket.socket(17, socket.SOCK_RAW).close()
    success("a packet socket")

@off("--cap-add=NET_RAW --user=0")
@without("bubblewrap; capabilities; !--uid !--gid --uid 0 --gid 0 --cap-add CAP_NET_RAW")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def open_a_raw_socket():
    """Sends ICMP through a raw socket"""
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()
    success("a raw socket")

@off("--security-opt=seccomp=unconfined")
@without("bubblewrap; filter of system calls")
def watch_page_faults():
    """Stops the kernel in the middle of a copy with userfaultfd"""
    call(323, 1)
    success("a userfaultfd")

@off("--security-opt=seccomp=unconfined")
@without("bubblewrap; filter of system calls")
def add_a_kernel_key():
    """Stores and finds keys of the user outside, since keyrings know no sandbox"""
    call(248, b"user", b"agentmine", b"x", 1, -4)
    success("a key in the user's keyring")

@off("--cap-add=DAC_READ_SEARCH --user=0 --security-opt=seccomp=unconfined")
@without("root bubblewrap; filter of system calls and capabilities; !--unshare-user !--uid !--gid --cap-add CAP_DAC_READ_SEARCH")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def open_by_handle():
    """Opens files of the machine by their inode numbers"""
    handle = ctypes.create_string_buffer(struct.pack("<Ii", 8, 1) + struct.pack("<II", 2, 0) + bytes(128))
    folder = os.open(os.environ.get("TMPDIR", "/tmp"), os.O_RDONLY)
    try:
        call(304, folder, handle, os.O_RDONLY)
    except OSError as error:
        if error.errno == errno.ESTALE:
            success("the call is allowed")
        raise
    success("the root of the machine's file system is open")

@off("--cap-add=SYS_CHROOT --user=0")
@without("bubblewrap; capabilities; --cap-add CAP_SYS_CHROOT")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def change_the_root():
    """Changes the root, to climb out of it"""
    folder = tempfile.mkdtemp(dir=os.environ.get("TMPDIR", "/tmp"))
    os.chroot(folder)
    success("chroot")

@refused_with("EINVAL")
@off("--cap-add=SYS_ADMIN --user=0 --security-opt=seccomp=unconfined")
@without("bubblewrap; filter of system calls and capabilities; !--uid !--gid --uid 0 --gid 0 --cap-add CAP_SYS_ADMIN")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def pivot_the_root():
    """Replaces the root of its namespace"""
    try:
        call(155, b"/usr", b"/usr")
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EBUSY) and os.getuid() == 0:
            success("the call is allowed")
        raise
    success("pivot_root")

@refused_with("EINVAL")
@undemonstrated("docker bubblewrap: the machine itself may forbid to open its disk by a new device file")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def make_a_disk_device():
    """Makes a device file of the machine's disk and reads it"""
    path = tempfile.mkdtemp(dir=os.environ.get("TMPDIR", "/tmp")) + "/disk"
    os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(254, 0))
    show(read(path, 512))
    success("a device file of the disk")

@off("--device=/dev/kmsg --user=0")
@without("root bubblewrap; devices of its own; !--unshare-user !--uid !--gid !--dev --dev-bind /dev /dev")
@undemonstrated("landlock: the files of these devices belong to root")
def open_devices_of_the_machine():
    """Opens disks, memory, terminals and the kernel's log"""
    names = ["vda", "sda", "nvme0n1", "mem", "kmem", "port", "kmsg", "kvm", "fuse", "loop-control", "loop0",
             "net/tun", "vhost-net", "vhost-vsock", "vsock", "uinput", "mapper/control", "cpu/0/msr", "console", "tty0", "tty1"]
    for name in names:
        for mode in [os.O_RDONLY, os.O_WRONLY]:
            try:
                os.close(os.open("/dev/" + name, mode | os.O_NONBLOCK))
                success("/dev/%s is open" % name)
            except OSError:
                pass

@off("--cap-add=SYS_MODULE --user=0 --security-opt=seccomp=unconfined")
@without("root bubblewrap; filter of system calls and capabilities; !--unshare-user !--uid !--gid --cap-add CAP_SYS_MODULE")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def load_a_kernel_module():
    """Loads a kernel module"""
    try:
        call(175, b"not a module", 12, b"")
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            success("the kernel looked at the module")
        raise
    success("init_module")

@undemonstrated("docker bubblewrap landlock: it would change what Ctrl-Alt-Del does on the machine")
def change_what_a_reboot_does():
    """Calls reboot, with the harmless command that turns Ctrl-Alt-Del off"""
    call(169, 0xfee1dead, 672274793, 0, 0)
    success("reboot")

@undemonstrated("docker bubblewrap landlock: it would set the machine's clock")
def set_the_clock():
    """Sets the machine's clock"""
    now = time.time()
    call(227, 0, struct.pack("<qq", int(now), int(now % 1 * 1e9)))
    success("the clock is set")

@off("--cap-add=SYS_ADMIN --user=0 --security-opt=seccomp=unconfined")
@without("bubblewrap; filter of system calls and capabilities; !--uid !--gid --uid 0 --gid 0 --cap-add CAP_SYS_ADMIN")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def set_the_host_name():
    """Renames the machine"""
    call(170, b"sandbox", 7)
    success("the name is set")

@off("--cap-add=SYSLOG --user=0 --security-opt=seccomp=unconfined")
@without("root bubblewrap; filter of system calls and capabilities; !--unshare-user !--uid !--gid --cap-add CAP_SYSLOG")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def read_the_kernels_log():
    """Reads the kernel's log, for its addresses"""
    buffer = ctypes.create_string_buffer(4096)
    if call(103, 3, buffer, 4096) > 0:
        success("the kernel's log")
    cannot("the log is empty")

@off("--cap-add=SYS_ADMIN --user=0 --security-opt=seccomp=unconfined")
@without("root bubblewrap; filter of system calls and capabilities; !--unshare-user !--uid !--gid --cap-add CAP_SYS_ADMIN")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def watch_the_whole_file_system():
    """Watches files with fanotify"""
    call(300, 0, 0)
    success("fanotify")

@off("--cap-add=SYS_RAWIO --user=0 --security-opt=seccomp=unconfined")
@without("root bubblewrap; filter of system calls and capabilities; !--unshare-user !--uid !--gid --cap-add CAP_SYS_RAWIO")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def reach_the_ports():
    """Reaches hardware with iopl"""
    call(172, 3)
    success("iopl")

@off("--cap-add=SYS_ADMIN --user=0 --security-opt=seccomp=unconfined")
@without("root bubblewrap; filter of system calls and capabilities; !--unshare-user !--uid !--gid --cap-add CAP_SYS_ADMIN")
@undemonstrated("landlock: without a user namespace the kernel asks for a capability, which no user without rights has")
def turn_swap_off():
    """Calls swapoff, which shows whether the kernel would obey"""
    try:
        call(168, b"/nowhere")
    except OSError as error:
        if error.errno == errno.ENOENT:
            success("the kernel looked for the swap file")
        raise

@only("docker bubblewrap")
@refused_with("EINVAL")
@off("--user=0")
@without("bubblewrap; user of its own; !--uid !--gid --uid 0 --gid 0")
def become_root():
    """Becomes root with setuid"""
    os.setuid(0)
    success("user %d" % os.geteuid())

@only("docker bubblewrap")
@off("")
@undemonstrated("bubblewrap: bwrap itself always forbids new rights")
def gain_rights_by_a_setuid_program():
    """Starts a setuid program of the image and looks whether it has its rights"""
    programs = [path for path in ["/usr/bin/passwd", "/usr/bin/su", "/bin/su", "/usr/bin/newgrp", "/usr/bin/mount"]
                if os.path.exists(path) and os.stat(path).st_mode & stat.S_ISUID]
    if not programs:
        cannot("no setuid program is here")
    master, slave = os.openpty()
    child = subprocess.Popen([tool("su"), "root"], stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    time.sleep(0.3)
    status = open("/proc/%d/status" % child.pid).read()
    child.kill()
    line = re.search(r"Uid:\t(\d+)\t(\d+)", status)
    if line.group(2) == "0":
        success("su runs as root")

@off("--cap-add=CHOWN --user=0")
@without("bubblewrap; capabilities; --cap-add CAP_SYS_ADMIN")
@undemonstrated("landlock: the suite's user has no capability to keep")
def keep_a_capability():
    """Looks for a capability that was left"""
    status = open("/proc/self/status").read()
    for name in ["CapInh", "CapPrm", "CapEff", "CapAmb"]:
        value = int(re.search(name + r":\t(\w+)", status).group(1), 16)
        if value:
            success("%s is %x" % (name, value))

@off("--security-opt=systempaths=unconfined --user=0")
@without("root bubblewrap; process files of its own; !--unshare-user !--uid !--gid !--proc --dev-bind /proc /proc")
@undemonstrated("landlock: these files belong to root")
def write_kernel_settings():
    """Opens the kernel's settings that start programs as root"""
    each([lambda path=path: (os.close(os.open(path, os.O_WRONLY)), success(path + " can be written"))
          for path in ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger",
                       "/sys/kernel/uevent_helper", "/proc/sys/kernel/hotplug", "/proc/sys/fs/binfmt_misc/register",
                       "/proc/sys/vm/panic_on_oom", "/proc/sys/kernel/yama/ptrace_scope", "/proc/irq/default_smp_affinity"]])

@off("--volume=/sys/fs/cgroup:/sys/fs/cgroup --user=0")
@without("root bubblewrap; mounts; !--unshare-user !--uid !--gid --bind /sys/fs/cgroup /sys/fs/cgroup")
@undemonstrated("landlock: these files belong to root")
def write_cgroups():
    """Looks for a cgroup file that it can write: limits, and programs that run on release"""
    for pattern in ["/sys/fs/cgroup/*", "/sys/fs/cgroup/*/*", "/sys/fs/cgroup/*/*/*"]:
        for path in glob.glob(pattern):
            if os.path.isfile(path) and os.access(path, os.W_OK):
                try:
                    os.close(os.open(path, os.O_WRONLY))
                except OSError:
                    continue
                success(path + " can be written")

@off("--volume=/run:/run --user=0")
@without("root bubblewrap; mounts; !--unshare-user !--uid !--gid --bind /run /run")
@undemonstrated("landlock: the socket belongs to root")
def talk_to_the_engine():
    """Looks for the sockets of Docker and containerd, which are root on the machine"""
    if os.environ.get("BACKEND") == "landlock":
        socket.socket(socket.AF_UNIX).close()
    for path in ["/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock",
                 "/run/dbus/system_bus_socket", "/run/systemd/private", "/run/user/0/bus"]:
        try:
            with socket.socket(socket.AF_UNIX) as stream:
                stream.connect(path)
                success(path)
        except OSError:
            pass

@off("--pid=host --user=0 --cap-add=SYS_PTRACE --security-opt=seccomp=unconfined")
@without("bubblewrap; closed descriptors; +folder")
def climb_through_an_inherited_folder():
    """Looks for a descriptor of a folder outside, and climbs from it to the machine's files"""
    for process in ["self", str(os.getppid())] + [str(it) for it in processes()]:
        try:
            names = os.listdir("/proc/%s/fd" % process)
        except OSError:
            continue
        for name in names:
            path = "/proc/%s/fd/%s" % (process, name)
            for up in ["", "/..", "/../..", "/../../..", "/../../../.."]:
                try:
                    show(read(path + up + env("BAIT_SECRET")))
                    success("the secret file, through %s%s" % (path, up))
                except OSError:
                    pass

@refused_with("ENOSYS")
@undemonstrated("docker bubblewrap landlock: the kernel must have been built with the x32 table")
def call_the_x32_table():
    """Uses the numbers of the x32 table, which a filter may not know"""
    call(272 | 0x40000000, CLONE_NEWUSER)
    success("unshare through x32")

@off("--security-opt=seccomp=unconfined")
@without("bubblewrap; filter of system calls")
def call_the_32_bit_table():
    """Uses the 32-bit entry of the kernel, whose numbers differ"""
    program = compiled("""
        #include <stdio.h>
        int main(void) {
            long result;
            __asm__ volatile("int $0x80" : "=a"(result) : "a"(310), "b"(0x10000000) : "memory");
            printf("%ld\\n", result);
            return 0;
        }""")
    done = subprocess.run([program], capture_output=True, text=True)
    if done.stdout.strip() == "0":
        success("unshare through the 32-bit table")
    blocked("result %s, signal %d" % (done.stdout.strip(), done.returncode))
