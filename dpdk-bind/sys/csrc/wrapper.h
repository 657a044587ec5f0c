/* Everything dpdk-sys binds, and the constants bindgen cannot read from macros. */
#ifndef DPDK_SYS_WRAPPER_H
#define DPDK_SYS_WRAPPER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <rte_config.h>
#include <rte_eal.h>
#include <rte_epoll.h>
#include <rte_errno.h>
#include <rte_dev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_cycles.h>
#include <rte_malloc.h>
#include <rte_mempool.h>
#include <rte_mbuf.h>
#include <rte_ring.h>
#include <rte_ethdev.h>
#include <rte_eth_ring.h>
#include <rte_telemetry.h>
#include <rte_version.h>

#include "shim.h"

/* Layout of the mbuf header as this DPDK was built; the Rust mirror is checked against it. */
enum dpdk_sys_mbuf_layout {
	DPDK_SYS_MBUF_SIZE = sizeof(struct rte_mbuf),
	DPDK_SYS_MBUF_BUF_ADDR = offsetof(struct rte_mbuf, buf_addr),
	DPDK_SYS_MBUF_BUF_IOVA = offsetof(struct rte_mbuf, buf_iova),
	DPDK_SYS_MBUF_DATA_OFF = offsetof(struct rte_mbuf, data_off),
	DPDK_SYS_MBUF_REFCNT = offsetof(struct rte_mbuf, refcnt),
	DPDK_SYS_MBUF_NB_SEGS = offsetof(struct rte_mbuf, nb_segs),
	DPDK_SYS_MBUF_PORT = offsetof(struct rte_mbuf, port),
	DPDK_SYS_MBUF_OL_FLAGS = offsetof(struct rte_mbuf, ol_flags),
	DPDK_SYS_MBUF_PACKET_TYPE = offsetof(struct rte_mbuf, packet_type),
	DPDK_SYS_MBUF_PKT_LEN = offsetof(struct rte_mbuf, pkt_len),
	DPDK_SYS_MBUF_DATA_LEN = offsetof(struct rte_mbuf, data_len),
	DPDK_SYS_MBUF_VLAN_TCI = offsetof(struct rte_mbuf, vlan_tci),
	DPDK_SYS_MBUF_RSS = offsetof(struct rte_mbuf, hash.rss),
	DPDK_SYS_MBUF_BUF_LEN = offsetof(struct rte_mbuf, buf_len),
	DPDK_SYS_MBUF_POOL = offsetof(struct rte_mbuf, pool),
	DPDK_SYS_MBUF_NEXT = offsetof(struct rte_mbuf, next),
	DPDK_SYS_MBUF_TX_OFFLOAD = offsetof(struct rte_mbuf, tx_offload),
	DPDK_SYS_MBUF_PRIV_SIZE = offsetof(struct rte_mbuf, priv_size),
};

enum dpdk_sys_limits {
	DPDK_SYS_HEADROOM = RTE_PKTMBUF_HEADROOM,
	DPDK_SYS_POOL_NAME = RTE_MEMPOOL_NAMESIZE,
	DPDK_SYS_RING_NAME = RTE_RING_NAMESIZE,
	DPDK_SYS_CACHE_MAX = RTE_MEMPOOL_CACHE_MAX_SIZE,
	DPDK_SYS_RETA_GROUP = RTE_ETH_RETA_GROUP_SIZE,
	DPDK_SYS_L2_LEN_BITS = RTE_MBUF_L2_LEN_BITS,
	DPDK_SYS_L3_LEN_BITS = RTE_MBUF_L3_LEN_BITS,
	DPDK_SYS_L4_LEN_BITS = RTE_MBUF_L4_LEN_BITS,
	DPDK_SYS_VERSION_YEAR = RTE_VER_YEAR,
	DPDK_SYS_VERSION_MONTH = RTE_VER_MONTH,
};

static const uint64_t DPDK_SYS_F_RX_VLAN = RTE_MBUF_F_RX_VLAN;
static const uint64_t DPDK_SYS_F_RX_VLAN_STRIPPED = RTE_MBUF_F_RX_VLAN_STRIPPED;
static const uint64_t DPDK_SYS_F_RX_RSS_HASH = RTE_MBUF_F_RX_RSS_HASH;
static const uint64_t DPDK_SYS_F_RX_IP_CKSUM_MASK = RTE_MBUF_F_RX_IP_CKSUM_MASK;
static const uint64_t DPDK_SYS_F_RX_IP_CKSUM_BAD = RTE_MBUF_F_RX_IP_CKSUM_BAD;
static const uint64_t DPDK_SYS_F_RX_IP_CKSUM_GOOD = RTE_MBUF_F_RX_IP_CKSUM_GOOD;
static const uint64_t DPDK_SYS_F_RX_L4_CKSUM_MASK = RTE_MBUF_F_RX_L4_CKSUM_MASK;
static const uint64_t DPDK_SYS_F_RX_L4_CKSUM_BAD = RTE_MBUF_F_RX_L4_CKSUM_BAD;
static const uint64_t DPDK_SYS_F_RX_L4_CKSUM_GOOD = RTE_MBUF_F_RX_L4_CKSUM_GOOD;
static const uint64_t DPDK_SYS_F_TX_TCP_CKSUM = RTE_MBUF_F_TX_TCP_CKSUM;
static const uint64_t DPDK_SYS_F_TX_UDP_CKSUM = RTE_MBUF_F_TX_UDP_CKSUM;
static const uint64_t DPDK_SYS_F_TX_IP_CKSUM = RTE_MBUF_F_TX_IP_CKSUM;
static const uint64_t DPDK_SYS_F_TX_IPV4 = RTE_MBUF_F_TX_IPV4;
static const uint64_t DPDK_SYS_F_TX_IPV6 = RTE_MBUF_F_TX_IPV6;
static const uint64_t DPDK_SYS_F_TX_OFFLOAD_MASK = RTE_MBUF_F_TX_OFFLOAD_MASK;
static const uint64_t DPDK_SYS_F_EXTERNAL = RTE_MBUF_F_EXTERNAL;
static const uint64_t DPDK_SYS_F_INDIRECT = RTE_MBUF_F_INDIRECT;

static const uint64_t DPDK_SYS_RX_IPV4_CKSUM = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
static const uint64_t DPDK_SYS_RX_UDP_CKSUM = RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
static const uint64_t DPDK_SYS_RX_TCP_CKSUM = RTE_ETH_RX_OFFLOAD_TCP_CKSUM;
static const uint64_t DPDK_SYS_RX_VLAN_STRIP = RTE_ETH_RX_OFFLOAD_VLAN_STRIP;
static const uint64_t DPDK_SYS_RX_SCATTER = RTE_ETH_RX_OFFLOAD_SCATTER;
static const uint64_t DPDK_SYS_RX_RSS_HASH = RTE_ETH_RX_OFFLOAD_RSS_HASH;
static const uint64_t DPDK_SYS_TX_IPV4_CKSUM = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
static const uint64_t DPDK_SYS_TX_UDP_CKSUM = RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
static const uint64_t DPDK_SYS_TX_TCP_CKSUM = RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
static const uint64_t DPDK_SYS_TX_MULTI_SEGS = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;

static const uint64_t DPDK_SYS_RSS_IP = RTE_ETH_RSS_IP;
static const uint64_t DPDK_SYS_RSS_UDP = RTE_ETH_RSS_UDP;
static const uint64_t DPDK_SYS_RSS_TCP = RTE_ETH_RSS_TCP;
static const uint64_t DPDK_SYS_RSS_SCTP = RTE_ETH_RSS_SCTP;
static const uint64_t DPDK_SYS_RSS_L2 = RTE_ETH_RSS_L2_PAYLOAD;
static const uint64_t DPDK_SYS_RSS_IPV4 = RTE_ETH_RSS_IPV4;
static const uint64_t DPDK_SYS_RSS_IPV6 = RTE_ETH_RSS_IPV6;
static const uint64_t DPDK_SYS_RSS_IPV4_TCP = RTE_ETH_RSS_NONFRAG_IPV4_TCP;
static const uint64_t DPDK_SYS_RSS_IPV4_UDP = RTE_ETH_RSS_NONFRAG_IPV4_UDP;
static const uint64_t DPDK_SYS_RSS_IPV6_TCP = RTE_ETH_RSS_NONFRAG_IPV6_TCP;
static const uint64_t DPDK_SYS_RSS_IPV6_UDP = RTE_ETH_RSS_NONFRAG_IPV6_UDP;

#endif
