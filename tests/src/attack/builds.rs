//! Whether the same profiles let real work happen: small projects with tests, in each language.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use agentmine_sandbox::{Command, Sandbox};
use serde::{Deserialize, Serialize};

use super::arena::{Limits, backend, spec};
use super::cell::Cell;

/// A language, the program that it needs, a shell script that makes a project, builds it and runs its tests, and what in
/// the script makes the code wrong, so that the tests must fail.
const PROJECTS: &[(&str, &str, &str, [&str; 2])] = &[
    (
        "C",
        "gcc",
        r#"printf 'int add(int a,int b);int add(int a,int b){return a+b;}' > add.c
printf '#include <assert.h>\nint add(int,int);int main(void){assert(add(2,3)==5);return 0;}' > test.c
printf 'test: test.c add.c\n\tgcc -Wall -O2 -pthread -o test test.c add.c && ./test\n' > Makefile && make -s test"#,
        ["return a+b;", "return a-b;"],
    ),
    (
        "C++ with ASan and UBSan",
        "g++",
        r#"printf '#include <vector>\n#include <thread>\n#include <cassert>\nint main(){std::vector<int> v;std::thread t([&]{v.push_back(5);});t.join();int*p=new int(7);assert(v[0]+*p==12);delete p;}' > t.cc
g++ -g -fsanitize=address,undefined -fno-omit-frame-pointer -pthread -o t t.cc && ./t"#,
        ["delete p;", "delete p;return *p;"],
    ),
    (
        "LeakSanitizer finds a leak",
        "gcc",
        r#"printf '#include <stdlib.h>\nint main(void){volatile char*p=malloc(100);p=0;return p!=0;}' > l.c
gcc -g -fsanitize=leak -o l l.c && ./l > out 2>&1; grep -q 'detected memory leaks' out || { cat out; exit 1; }"#,
        ["p=0;", "free((void*)p);p=0;"],
    ),
    (
        "ThreadSanitizer",
        "gcc",
        r#"printf '#include <pthread.h>\nstatic int x;static void*f(void*a){x=1;return a;}int main(void){pthread_t t;pthread_create(&t,0,f,0);pthread_join(t,0);return x!=1;}' > s.c
gcc -g -fsanitize=thread -o s s.c -pthread && ./s"#,
        [
            "pthread_join(t,0);return",
            "x=2;pthread_join(t,0);x=1;return",
        ],
    ),
    (
        "Rust",
        "cargo",
        r#"mkdir -p src && printf '[package]\nname="p"\nversion="0.1.0"\nedition="2021"\n' > Cargo.toml
printf 'pub fn add(a:i32,b:i32)->i32{a+b}\n#[test]\nfn adds(){assert_eq!(add(2,3),5);}\n#[test]\nfn listens(){let l=std::net::TcpListener::bind("127.0.0.1:0");println!("{l:?}");}\n' > src/lib.rs && cargo test --offline -q"#,
        ["{a+b}", "{a-b}"],
    ),
    (
        "Go",
        "go",
        r#"printf 'module p\n\ngo 1.18\n' > go.mod && printf 'package p\n\nfunc Add(a, b int) int { return a + b }\n' > p.go
printf 'package p\n\nimport "testing"\n\nfunc TestAdd(t *testing.T) { if Add(2, 3) != 5 { t.Fatal() } }\n' > p_test.go && go vet ./... && go test ./..."#,
        ["return a + b", "return a - b"],
    ),
    (
        "Node",
        "node",
        r#"printf '{"name":"p","version":"1.0.0","scripts":{"test":"node t.js"}}' > package.json
printf 'module.exports=(a,b)=>a+b;' > add.js
printf 'const a=require("assert"),add=require("./add"),{Worker}=require("worker_threads"),c=require("child_process");a.equal(add(2,3),5);a.equal(c.execSync("echo hi").toString(),"hi\\n");new Worker("process.exit(0)",{eval:true});' > t.js && npm test --silent"#,
        ["=>a+b;", "=>a-b;"],
    ),
    (
        "Python",
        "python3",
        r#"printf 'def add(a, b): return a + b\n' > add.py
printf 'import unittest,subprocess,tempfile,multiprocessing\nfrom add import add\nclass T(unittest.TestCase):\n  def test_a(self): self.assertEqual(add(2,3),5)\n  def test_b(self): self.assertEqual(subprocess.check_output(["echo","x"]),b"x\\n")\n  def test_c(self): open(tempfile.mktemp(),"w").write("x")\nif __name__=="__main__": unittest.main()\n' > t.py && python3 t.py"#,
        ["return a + b", "return a - b"],
    ),
    (
        "Python with a process pool",
        "python3",
        r#"printf 'from concurrent.futures import ProcessPoolExecutor as P\nif __name__=="__main__":\n  with P(2) as p: assert list(p.map(abs,[-1,-2]))==[1,2]\n' > m.py && python3 m.py"#,
        ["map(abs,", "map(int,"],
    ),
    (
        "Java",
        "javac",
        r#"printf 'public class T{static int add(int a,int b){return a+b;} public static void main(String[] x)throws Exception{if(add(2,3)!=5)throw new Exception();Thread t=new Thread(()->System.out.println("ok"));t.start();t.join();}}' > T.java && javac T.java && java -cp . T"#,
        ["return a+b;", "return a-b;"],
    ),
    (
        "a server on 127.0.0.1",
        "python3",
        r#"printf 'import socket,threading\ns=socket.create_server(("127.0.0.1",0))\nthreading.Thread(target=lambda:s.accept()[0].sendall(b"x"),daemon=True).start()\nassert socket.create_connection(s.getsockname()).recv(1)==b"x"\n' > n.py && python3 n.py"#,
        ["sendall(b\"x\")", "sendall(b\"y\")"],
    ),
    (
        "a server on ::1",
        "python3",
        r#"printf 'import socket,threading\ns=socket.create_server(("::1",0),family=socket.AF_INET6)\nthreading.Thread(target=lambda:s.accept()[0].sendall(b"x"),daemon=True).start()\nassert socket.create_connection(s.getsockname()[:2]).recv(1)==b"x"\n' > n6.py && python3 n6.py"#,
        ["sendall(b\"x\")", "sendall(b\"y\")"],
    ),
    (
        "a debugger",
        "gdb",
        r#"printf 'int main(void){return 0;}' > d.c && gcc -g -o d d.c && gdb -batch -ex run ./d | grep -q 'exited normally'"#,
        ["return 0;", "return 1;"],
    ),
];

/// How a project went in a kind of sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Built {
    /// The project.
    pub project: String,
    /// Where.
    pub cell: Cell,
    /// `Ok` if its tests passed; `Err(None)` if its tools are missing, else the end of its output.
    pub result: Result<Duration, Option<String>>,
}

/// Builds and tests projects in a kind of sandbox: those of `only`, or all, if it names none.
///
/// # Errors
/// When no sandbox can be started.
pub async fn build_all(cell: Cell, only: &[String]) -> anyhow::Result<Vec<Built>> {
    let backend = backend(cell, Limits::Default).await?;
    let sandbox = backend.start(&spec()).await?;
    let mut built = Vec::new();
    for (at, &(project, program, script, [right, wrong])) in PROJECTS.iter().enumerate() {
        if !only.is_empty() && !only.iter().any(|it| it == project) {
            continue;
        }
        let began = Instant::now();
        let mut result = run(sandbox.as_ref(), &line(&format!("p{at}"), program, script)).await?;
        let time = began.elapsed();
        if result.is_ok() {
            // Tests that cannot fail say nothing.
            let broken = script.replace(right, wrong);
            let folder = format!("broken{at}");
            let noticed = run(sandbox.as_ref(), &line(&folder, program, &broken)).await?;
            if broken == script || noticed.is_ok() {
                result = Err(Some("its tests pass with wrong code too".to_owned()));
            }
        }
        built.push(Built {
            project: project.to_owned(),
            cell,
            result: result.map(|()| time),
        });
    }
    sandbox.remove().await?;
    Ok(built)
}

fn line(folder: &str, program: &str, script: &str) -> String {
    format!(
        "command -v {program} > /dev/null || exit 77; mkdir {folder} && cd {folder} && {{ {script}\n}}"
    )
}

async fn run(sandbox: &dyn Sandbox, line: &str) -> anyhow::Result<Result<(), Option<String>>> {
    let done = sandbox
        .run(Command {
            argv: ["/bin/bash", "-c", line].map(str::to_owned).into(),
            cwd: "/workspace/project".into(),
            env: BTreeMap::new(),
            stdin: Vec::new(),
            timeout: Duration::from_secs(240),
            max_output: 20_000,
        })
        .await?;
    Ok(match done.exit_code {
        0 => Ok(()),
        77 => Err(None),
        code => {
            let all = [&done.stdout[..], &done.stderr[..]].concat();
            let text = String::from_utf8_lossy(&all);
            let lines: Vec<&str> = text
                .lines()
                .filter(|line| !line.trim().is_empty())
                .collect();
            let last = lines[lines.len().saturating_sub(3)..].join(" | ");
            Err(Some(format!("exit code {code}: {last}")))
        }
    })
}
