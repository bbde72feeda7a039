//! Sets limits and becomes another program.
//!
//! `LAUNCHER BYTES SECONDS PROGRAM [ARGUMENT]...`: address space and CPU time. The environment is passed on unchanged, and nothing
//! in it is checked. Without a library, so that its start costs a page or two: `build.rs` compiles it.

#![no_std]
#![no_main]
// A loop that became a call of `memcpy` would need one.
#![no_builtins]

use core::arch::{asm, naked_asm};

#[cfg(target_arch = "x86_64")]
mod number {
    pub(crate) const WRITE: usize = 1;
    pub(crate) const EXECVE: usize = 59;
    pub(crate) const EXIT_GROUP: usize = 231;
    pub(crate) const OPENAT: usize = 257;
    pub(crate) const PRLIMIT64: usize = 302;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub(crate) const OPENAT: usize = 56;
    pub(crate) const WRITE: usize = 64;
    pub(crate) const EXIT_GROUP: usize = 94;
    pub(crate) const EXECVE: usize = 221;
    pub(crate) const PRLIMIT64: usize = 261;
}

const RLIMIT_CPU: usize = 0;
const RLIMIT_CORE: usize = 4;
const RLIMIT_AS: usize = 9;
const WRITE_ONLY_CLOSE_ON_EXEC: usize = 0o2_000_001;
const STDERR: usize = 2;
/// That of a shell which cannot execute a program.
const FAILED: usize = 126;

/// The kernel's `struct rlimit64`.
#[repr(C)]
struct Limit {
    soft: u64,
    hard: u64,
}

#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    #[cfg(target_arch = "x86_64")]
    naked_asm!("xor ebp, ebp", "mov rdi, rsp", "call {}", "ud2", sym launch);
    #[cfg(target_arch = "aarch64")]
    naked_asm!("mov x29, xzr", "mov x0, sp", "bl {}", "brk 1", sym launch);
}

/// Gets what the kernel puts on the stack: the number of arguments, the arguments, a zero, the environment, a zero.
unsafe extern "C" fn launch(stack: *const usize) -> ! {
    // SAFETY: the kernel's layout of a new process; no argument is read but those that are there.
    unsafe {
        let count = *stack;
        if count < 4 {
            fail(b"expected BYTES SECONDS PROGRAM\n");
        }
        let arguments = stack.add(1);
        let environment = arguments.add(count + 1);
        let space = number(*arguments.add(1) as *const u8);
        let cpu_seconds = number(*arguments.add(2) as *const u8);
        for (resource, most) in [
            (RLIMIT_AS, space),
            (RLIMIT_CPU, cpu_seconds),
            (RLIMIT_CORE, 0),
        ] {
            limit(resource, most);
        }
        killed_first();
        let program = arguments.add(3);
        call(
            number::EXECVE,
            [*program, program as usize, environment as usize, 0],
        );
    }
    fail(b"the program could not be executed\n")
}

fn limit(resource: usize, most: u64) {
    let limit = Limit {
        soft: most,
        hard: most,
    };
    // SAFETY: the kernel reads the local struct.
    if unsafe {
        call(
            number::PRLIMIT64,
            [0, resource, &raw const limit as usize, 0],
        )
    } != 0
    {
        fail(b"a limit could not be set\n");
    }
}

/// A host that runs out of memory kills this process before the worker. Where that cannot be set, the limits still hold.
fn killed_first() {
    const SCORE: &[u8] = b"1000";
    let path = c"/proc/self/oom_score_adj".as_ptr() as usize;
    // SAFETY: the kernel reads the two constants. Executing closes the file.
    unsafe {
        let file = call(number::OPENAT, [0, path, WRITE_ONLY_CLOSE_ON_EXEC, 0]);
        if file >= 0 {
            call(
                number::WRITE,
                [file as usize, SCORE.as_ptr() as usize, SCORE.len(), 0],
            );
        }
    }
}

/// The worker writes decimal digits alone.
unsafe fn number(mut text: *const u8) -> u64 {
    let mut number = 0_u64;
    // SAFETY: an argument ends with a zero.
    unsafe {
        while *text != 0 {
            let digit = (*text).wrapping_sub(b'0');
            if digit > 9 {
                fail(b"a limit is no number\n");
            }
            number = number.wrapping_mul(10).wrapping_add(digit as u64);
            text = text.add(1);
        }
    }
    number
}

fn fail(why: &[u8]) -> ! {
    // SAFETY: the kernel reads the two texts.
    unsafe {
        for text in [b"agentmine-launcher: ".as_slice(), why] {
            call(
                number::WRITE,
                [STDERR, text.as_ptr() as usize, text.len(), 0],
            );
        }
        loop {
            call(number::EXIT_GROUP, [FAILED, 0, 0, 0]);
        }
    }
}

/// A system call.
unsafe fn call(number: usize, [a, b, c, d]: [usize; 4]) -> isize {
    let result: isize;
    // SAFETY: the registers of the kernel's convention; the caller answers for the rest.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            lateout("rcx") _, lateout("r11") _, options(nostack));
        #[cfg(target_arch = "aarch64")]
        asm!("svc 0", in("x8") number, inlateout("x0") a => result, in("x1") b, in("x2") c, in("x3") d, options(nostack));
    }
    result
}

#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    fail(b"a panic\n")
}
