//! Safe ownership over DPDK: EAL, ports, queues, mempools and mbufs.
