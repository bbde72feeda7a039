//! Writes down what a model says, so that it can be replayed.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use agentmine_domain::Usage;
use async_trait::async_trait;
use tokio::sync::mpsc::UnboundedSender;

use crate::recording::{Recorded, to_text};
use crate::{Delta, LlmError, Model, ModelReply, ModelRequest};

/// A model that writes each reply of another one to a recording. One recorder for one conversation:
/// the lines have no other order than that in which the replies came.
pub struct Recorder {
    inner: Arc<dyn Model>,
    path: PathBuf,
    file: Mutex<File>,
}

impl Recorder {
    /// Records `inner` to `path`. A file that is there is replaced.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn new(inner: Arc<dyn Model>, path: &Path) -> io::Result<Self> {
        Ok(Self {
            inner,
            path: path.to_owned(),
            file: Mutex::new(File::create(path)?),
        })
    }

    fn write(&self, line: &Recorded) -> io::Result<()> {
        let text = to_text(std::slice::from_ref(line))?;
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(text.as_bytes())
    }
}

#[async_trait]
impl Model for Recorder {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn reply(
        &self,
        request: ModelRequest<'_>,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError> {
        let (reply, usage) = self.inner.reply(request, watch).await?;
        // A recording with a hole would play the wrong replies later, so this is an error now.
        self.write(&Recorded::new(&reply, Some(usage)))
            .map_err(|error| {
                let path = self.path.display();
                LlmError::Replay(format!("{path} cannot be written: {error}"))
            })?;
        Ok((reply, usage))
    }
}
