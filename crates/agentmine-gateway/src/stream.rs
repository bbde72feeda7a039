//! One connection out of a sandbox.

use tokio::io::{AsyncRead, AsyncWrite};

/// The bytes of one connection, in both directions.
pub trait GatewayStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> GatewayStream for T {}
