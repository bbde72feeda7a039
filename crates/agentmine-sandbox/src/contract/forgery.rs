//! Tested code that wants to decide about its own result.

use super::*;

contract![
    what_a_command_starts_cannot_look_into_the_guest,
    the_shell_of_a_check_cannot_be_patched,
    what_an_earlier_command_left_running_is_killed_before_a_check,
    a_check_does_not_run_a_program_that_an_earlier_check_put_in_front,
    io_uring_and_vsock_are_refused,
    the_loopback_address_of_ip_version_6_works,
    sanitizers_find_leaks_and_overflows,
];

/// Tries every way into the processes with these pids, and prints what worked.
const REACH: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
ATTACH, DETACH, PIDFD_OPEN, PIDFD_GETFD, READV, WRITEV = 16, 17, 434, 438, 310, 311
class Iovec(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]
def reach(pid):
    for name in ['mem', 'environ', 'maps', 'fd/0', 'fd/1']:
        for mode in [os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_NONBLOCK]:
            try:
                os.open(f'/proc/{pid}/{name}', mode)
                yield f'{name} {mode}'
            except OSError: pass
    try: yield f'fd/1 is {os.readlink(f"/proc/{pid}/fd/1")}'
    except OSError: pass
    if libc.ptrace(ATTACH, pid, 0, 0) == 0:
        yield 'ptrace'
        os.waitpid(pid, 0x40000000)
        libc.ptrace(DETACH, pid, 0, 0)
    handle = libc.syscall(PIDFD_OPEN, pid, 0)
    if handle >= 0 and libc.syscall(PIDFD_GETFD, handle, 1, 0) >= 0: yield 'pidfd_getfd'
    buffer = ctypes.create_string_buffer(8)
    own = Iovec(ctypes.cast(buffer, ctypes.c_void_p), 8)
    for name, call in [('read', READV), ('write', WRITEV)]:
        other = Iovec(id(reach), 8)
        done = libc.syscall(call, pid, ctypes.byref(own), 1, ctypes.byref(other), 1, 0)
        # A process that may be reached has nothing at this address.
        if done >= 0 or ctypes.get_errno() == 14: yield f'process_vm_{name}v'
for pid in sys.argv[1:]:
    for way in reach(int(pid)): print(pid, way)
"#;
/// The pids of all guests in the sandbox. Without a namespace those of other tests are seen too, and may be ending.
fn guests(kind: Kind) -> &'static str {
    match kind {
        Kind::Alone => "$PPID",
        Kind::Docker | Kind::Namespaces => {
            "$(for d in /proc/[0-9]*; do grep -qs '^agentmine-guest' $d/comm && echo ${d#/proc/}; done)"
        }
    }
}

async fn what_a_command_starts_cannot_look_into_the_guest(bench: Bench) {
    let sandbox = bench.start().await;
    sandbox.write("reach.py", REACH).await;
    let find = guests(bench.kind);
    let guests = sandbox.output(&format!("echo {find}")).await;
    assert!(!guests.is_empty());
    // Another process of the same user is reached, so the ways are ways.
    let own = sandbox
        .output("sleep 20 & python3 reach.py $!; kill $!")
        .await;
    for way in ["mem 0", "environ", "fd/1", "ptrace"] {
        assert!(own.contains(way), "{way}: {own}");
    }
    assert_eq!(
        sandbox.output(&format!("python3 reach.py {find}")).await,
        ""
    );
    // Only what runs without a namespace, or beside the first process of one, can be ended.
    if bench.kind == Kind::Namespaces {
        sandbox.shell("kill -9 $PPID").await;
        assert_eq!(sandbox.output("echo alive").await, "alive");
    }
    sandbox.remove().await.unwrap();
}

async fn the_shell_of_a_check_cannot_be_patched(bench: Bench) {
    let sandbox = bench.start().await;
    sandbox.write("reach.py", REACH).await;
    let line = |name: &str| Command {
        argv: vec![
            name.into(),
            "-c".into(),
            "python3 reach.py $$; exit 3".into(),
        ],
        ..shell("")
    };
    for name in ["/bin/sh", "/bin/bash"] {
        let done = sandbox.check(line(name)).await.unwrap();
        assert_eq!(done.exit_code, 3, "{}", text(&done.stderr));
        assert_eq!(text(&done.stdout), "", "{name}");
    }
    // It is a shell like any other.
    let usual =
        "test $0 = me && diff <(echo a) <(echo a) && cat < /dev/stdin <<< x && false || exit 4";
    let mut command = shell(usual);
    command.argv.push("me".into());
    let done = sandbox.check(command).await.unwrap();
    assert_eq!((done.exit_code, text(&done.stdout)), (4, "x\n".into()));
    sandbox.remove().await.unwrap();
}

async fn what_an_earlier_command_left_running_is_killed_before_a_check(bench: Bench) {
    let sandbox = bench.start().await;
    let leave = "setsid sh -c 'while :; do echo x >> ../tmp/seen; sleep 0.02; done' \
                 < /dev/null > /dev/null 2>&1 & \
                 (trap '' TERM HUP; exec -a daemon sleep 300 > /dev/null 2>&1 &) ; \
                 for i in $(seq 30); do setsid sleep 300 > /dev/null 2>&1 & done";
    sandbox.output(leave).await;
    sandbox.until("[ -s ../tmp/seen ]").await;
    let check = "rm ../tmp/seen; cat /proc/[0-9]*/stat 2>/dev/null | grep -c '(sleep) [^Z]'; \
                 sleep 0.2; test ! -e ../tmp/seen";
    let done = sandbox.check(shell(check)).await.unwrap();
    assert_eq!(done.exit_code, 0, "{}", text(&done.stdout));
    if bench.kind != Kind::Alone {
        // One that is not reaped yet does nothing any more.
        assert_eq!(text(&done.stdout), "0\n");
    }
    // Other commands leave alone what runs.
    sandbox
        .output("sleep 300 > /dev/null 2>&1 & echo $! > ../tmp/pid")
        .await;
    sandbox.output("kill -0 $(cat ../tmp/pid)").await;
    sandbox.remove().await.unwrap();
}

async fn a_check_does_not_run_a_program_that_an_earlier_check_put_in_front(bench: Bench) {
    let sandbox = bench.start().await;
    let find = || shell("command -v git; command -v own-tool");
    sandbox
        .output("mkdir -p ~/.local/bin; echo 'exit 0' > ~/.local/bin/own-tool; chmod +x ~/.local/bin/own-tool")
        .await;
    let first = text(&sandbox.check(find()).await.unwrap().stdout);
    let shim = "mkdir -p ~/.cargo/bin; echo 'exit 0' > ~/.cargo/bin/git; chmod +x ~/.cargo/bin/git; \
                echo 'exit 0' > ~/.bashrc; cp ~/.bashrc ~/.profile; cp ~/.bashrc ~/.bash_profile; \
                export BASH_ENV=~/.bashrc ENV=~/.bashrc; command -v git";
    let shim = text(&sandbox.check(shell(shim)).await.unwrap().stdout);
    assert!(shim.contains("/.cargo/bin/git"), "{shim}");
    assert_eq!(text(&sandbox.check(find()).await.unwrap().stdout), first);
    assert!(
        first.contains("/.local/bin/own-tool") && !first.contains("/.cargo/"),
        "{first}"
    );
    sandbox.remove().await.unwrap();
}

/// Whatever the engine's own filter allows.
async fn io_uring_and_vsock_are_refused(bench: Bench) {
    let sandbox = bench.start().await;
    let calls = "import ctypes, socket\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        print(libc.syscall(425, 1, ctypes.create_string_buffer(128)), ctypes.get_errno())\n\
        try: socket.socket(40, socket.SOCK_STREAM)\n\
        except OSError as error: print(error.errno)\n";
    sandbox.write("calls.py", calls).await;
    assert_eq!(sandbox.output("python3 calls.py").await, "-1 1\n1");
    let filters = "grep Seccomp_filters /proc/self/status /proc/1/status | tr -s '\\t\\n' ' '";
    if bench.kind == Kind::Docker {
        // The engine's own, and those of the guest.
        let counts = sandbox.output(filters).await;
        let counts = counts.split(' ').filter_map(|it| it.parse::<u32>().ok());
        assert!(counts.min() > Some(1));
    }
    sandbox.remove().await.unwrap();
}

async fn the_loopback_address_of_ip_version_6_works(bench: Bench) {
    if bench.kind == Kind::Alone || !std::path::Path::new("/proc/net/if_inet6").exists() {
        return;
    }
    let sandbox = bench.start().await;
    let connect = "import socket\n\
        server = socket.create_server(('::1', 0), family=socket.AF_INET6)\n\
        client = socket.create_connection(server.getsockname()[:2])\n\
        client.sendall(b'x'); print(server.accept()[0].recv(1))\n";
    sandbox.write("connect.py", connect).await;
    assert_eq!(sandbox.output("python3 connect.py").await, "b'x'");
    sandbox.remove().await.unwrap();
}

/// Leak detection traces the program itself.
async fn sanitizers_find_leaks_and_overflows(bench: Bench) {
    let sandbox = bench.start().await;
    let program = "int main(int n, char **a) { volatile char *p = new char[10]; \
                   if (n > 1) p[n + 8] = 1; p = 0; return 0; }";
    sandbox.write("leak.cc", program).await;
    let build = |sanitizer: &str| format!("g++ -g -fsanitize={sanitizer} leak.cc -o {sanitizer}");
    for sanitizer in ["address", "leak"] {
        sandbox.output(&build(sanitizer)).await;
        let leaks = sandbox.shell(&format!("./{sanitizer}")).await;
        let leak = text(&leaks.stderr).contains("10 byte(s) leaked in 1 allocation(s)");
        assert!(leak, "{sanitizer}: {}", text(&leaks.stderr));
        let checked = sandbox
            .check(shell(&format!("./{sanitizer}")))
            .await
            .unwrap();
        assert_eq!(checked.exit_code, leaks.exit_code);
    }
    let overflow = sandbox.shell("./address 1 2").await;
    assert!(text(&overflow.stderr).contains("heap-buffer-overflow"));
    sandbox.remove().await.unwrap();
}
