//! A thread that starts processes.
//!
//! The kernel sends a parent death signal when the *thread* that started the process ends, and the threads
//! of an async runtime come and go. This thread ends with the program.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, mpsc};

type Job = Box<dyn FnOnce() + Send>;

static THREAD: LazyLock<Option<mpsc::Sender<Job>>> = LazyLock::new(|| {
    let (jobs, next) = mpsc::channel::<Job>();
    std::thread::Builder::new()
        .name("process-spawner".into())
        .spawn(move || {
            for job in next {
                // A job may panic when its runtime is shutting down. The next job may belong to another one.
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
        })
        .ok()
        .map(|_| jobs)
});

/// Runs a job on a thread that lives as long as this program. The job should only start a process: jobs run
/// one after another.
///
/// # Errors
/// When the thread could not be started.
pub fn run_on_spawner_thread(job: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = THREAD.as_ref().ok_or(io::ErrorKind::OutOfMemory)?;
    thread
        .send(Box::new(job))
        .map_err(|_| io::ErrorKind::BrokenPipe.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_share_one_thread_which_survives_a_panic() {
        let (report, reports) = mpsc::channel();
        for _ in 0..2 {
            let report = report.clone();
            run_on_spawner_thread(move || {
                report.send(std::thread::current().id()).unwrap();
                panic!("expected by this test");
            })
            .unwrap();
        }
        assert_eq!(reports.recv().unwrap(), reports.recv().unwrap());
    }
}
