# The worker's tokens, keys and URLs. The suite knows them and looks for them in all output.

@off("--env=GITHUB_TOKEN=$TOKEN")
@without("bubblewrap; cleared environment; !--clearenv")
def read_its_environment():
    """Prints its environment"""
    show(json.dumps(dict(os.environ)))

@weaker("landlock: without namespaces the machine's list of processes can be read")
@off("--pid=host --user=0 --cap-add=SYS_PTRACE --security-opt=seccomp=unconfined")
@without("root bubblewrap; process namespace and capabilities; !--unshare-pid !--unshare-user !--uid !--gid !--proc --dev-bind /proc /proc --cap-add CAP_SYS_PTRACE")
def read_all_environments():
    """Prints the environment and command line of all processes, in base64"""
    for process in processes():
        for name in ["environ", "cmdline"]:
            try:
                show(base64.b64encode(read("/proc/%d/%s" % (process, name), 100000)))
            except OSError:
                pass

@through("gateway")
@without("gateway; the token outside of the sandbox; +token")
def read_its_git_configuration():
    """Prints all of git's configuration and what its credential helpers give"""
    git = tool("git")
    show(subprocess.run([git, "config", "--list", "--show-origin"], capture_output=True).stdout)
    show(subprocess.run([git, "remote", "-v"], capture_output=True).stdout)
    done = subprocess.run([git, "credential", "fill"], input=b"url=%s\n\n" % env("REMOTE").encode(), capture_output=True,
                          env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "/bin/true"})
    show(done.stdout)

@off("--volume=$SECRETS_HOME:/root --user=0")
@without("bubblewrap; mounts; --bind $SECRETS_HOME /root")
def read_files_of_secrets():
    """Prints the files in which people and tools keep secrets"""
    names = [".netrc", ".git-credentials", ".config/gh/hosts.yml", ".docker/config.json", ".npmrc", ".pypirc", ".cargo/credentials.toml",
             ".aws/credentials", ".ssh/id_rsa", ".ssh/id_ed25519", ".kube/config", ".config/gcloud/credentials.db", ".env"]
    homes = ["/root", "/home/*", os.path.expanduser("~"), "/etc", "/workspace", "/workspace/project", "/run/secrets", "/var/run/secrets/*/*"]
    for home in homes:
        for name in names:
            for path in glob.glob(home + "/" + name):
                try:
                    show(read(path, 100000))
                    if home in ["/root", "/home/*"]:
                        success(path)
                except OSError:
                    pass

@limit(90)
@off("--volume=$BAIT_FOLDER:$BAIT_FOLDER --user=0")
@without("bubblewrap; mounts; --bind $BAIT_FOLDER $BAIT_FOLDER")
@undemonstrated("landlock: it would read the whole machine; read_a_file lacks the same control")
def search_all_files():
    """Searches everything that it can read for its secrets"""
    skipped = ("/proc", "/sys", "/usr", "/lib", "/opt/agentmine-mcp")
    total = 0
    for folder, folders, names in os.walk("/"):
        if folder.startswith(skipped) or "/node_modules" in folder or "/.rustup" in folder or "/.pyenv" in folder:
            folders[:] = []
            continue
        for name in names:
            path = folder + "/" + name
            try:
                if stat.S_ISREG(os.lstat(path).st_mode) and os.path.getsize(path) < 4 << 20:
                    data = read(path, 4 << 20)
                    total += 1
                    for at in re.finditer(rb"canary[0-9a-f]{8,}", data):
                        show(path + " " + at.group().decode())
            except OSError:
                pass
    blocked("%d files" % total)

@off("--pid=host --user=0 --cap-add=SYS_PTRACE --security-opt=seccomp=unconfined")
@without("root bubblewrap; process namespace and capabilities; !--unshare-pid !--unshare-user !--uid !--gid !--proc --dev-bind /proc /proc --cap-add CAP_SYS_PTRACE")
def read_the_command_lines_of_the_worker():
    """Prints the worker's command line and environment"""
    each([lambda it=it: show(read("/proc/%d/%s" % (number("WORKER_PID"), it), 100000)) for it in ["cmdline", "environ"]])

@through("gateway")
def get_the_token_from_the_proxy():
    """Asks the web proxy for the forge, so that it may add the token"""
    for host in ["127.0.0.1", "localhost"] + env("HOST_ADDRESSES").split():
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
            stream.settimeout(3)
            stream.connect(("127.0.0.1", number("WEB_PORT")))
            stream.sendall(("GET http://%s:%s/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % (host, env("BAIT_TCP"))).encode())
            try:
                show(stream.recv(65536))
            except OSError:
                pass

@through("gateway")
@without("gateway; the token outside of the sandbox; +token")
def trace_git():
    """Lets git print everything that it sends and gets"""
    done = subprocess.run([tool("git"), "ls-remote", env("REMOTE")], capture_output=True,
                          env={**os.environ, "GIT_TRACE_CURL": "1", "GIT_TRACE_PACKET": "1", "GIT_CURL_VERBOSE": "1", "GIT_TRACE_REDACT": "0"})
    show(done.stderr[-100000:])
    if done.returncode:
        cannot("git ls-remote failed")

@off("--security-opt=seccomp=unconfined")
@without("bubblewrap; filter of system calls")
def read_the_keys_of_the_kernel():
    """Reads the keys of its user in the kernel"""
    each([lambda it=it: (call(250, 6, it, ctypes.create_string_buffer(100), 100), success("keyring %d" % it)) for it in [-3, -4, -5]])

@without("landlock; no core files; +core")
@without("bubblewrap; no core files; +core")
@undemonstrated("docker: the engine's own limit decides")
def read_the_core_of_a_crash():
    """Crashes a program and looks for its core"""
    if os.fork() == 0:
        os.kill(os.getpid(), signal.SIGABRT)
    os.wait()
    for path in glob.glob("core*") + glob.glob("/var/crash/*") + glob.glob("/var/lib/systemd/coredump/*"):
        success(path)
