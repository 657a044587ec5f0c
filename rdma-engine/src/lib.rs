//! Work requests, buffers in flight and RDMA transports: verbs, soft RoCEv2 and loopback.
