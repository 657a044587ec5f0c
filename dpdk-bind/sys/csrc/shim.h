/* Out-of-line copies of DPDK's static inline functions that Rust needs.
 * Each is called at most once per burst, or once per allocation or free. */
#ifndef DPDK_SYS_SHIM_H
#define DPDK_SYS_SHIM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct rte_mbuf;
struct rte_mempool;
struct rte_ring;
struct rte_tel_data;

/* Makes DPDK log through `write`, which gets each message with its cookie, until the process ends. */
int dpdk_sys_log_through(void *cookie, ssize_t (*write)(void *cookie, const char *bytes, size_t len));

int dpdk_sys_errno(void);
unsigned int dpdk_sys_lcore_id(void);

uint16_t dpdk_sys_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n);
uint16_t dpdk_sys_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n);
uint16_t dpdk_sys_tx_prepare(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n);

struct rte_mbuf *dpdk_sys_mbuf_alloc(struct rte_mempool *pool);
int dpdk_sys_mbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int n);
void dpdk_sys_mbuf_free(struct rte_mbuf *m);
/* A new indirect mbuf from `pool` that shares `len` bytes of the segment `m` from `offset`; NULL when the
 * pool is empty. The caller has checked that the range lies inside the segment. */
struct rte_mbuf *dpdk_sys_mbuf_share(struct rte_mempool *pool, struct rte_mbuf *m, uint16_t offset, uint16_t len);
/* Puts `n` buffers, each unique, direct and of one segment, back into their common pool. */
void dpdk_sys_mempool_put_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int n);

uint16_t dpdk_sys_pool_data_room(struct rte_mempool *pool);
uint16_t dpdk_sys_pool_priv_size(struct rte_mempool *pool);
uint32_t dpdk_sys_pool_size(const struct rte_mempool *pool);
uint32_t dpdk_sys_pool_cache_size(const struct rte_mempool *pool);

unsigned int dpdk_sys_ring_dequeue(struct rte_ring *ring, struct rte_mbuf **mbufs, unsigned int n);
unsigned int dpdk_sys_ring_count(const struct rte_ring *ring);
unsigned int dpdk_sys_ring_flags_spsc(void);

/* The link as plain numbers: its structure has bit fields that moved between releases. */
struct dpdk_sys_link {
	uint32_t speed_mbps;
	uint8_t up;
	uint8_t full_duplex;
};
int dpdk_sys_link(uint16_t port, struct dpdk_sys_link *link);

/* Numbers in telemetry changed their names after 22.11. */
int dpdk_sys_tel_start_u64_array(struct rte_tel_data *data);
int dpdk_sys_tel_add_array_u64(struct rte_tel_data *data, uint64_t n);
int dpdk_sys_tel_add_dict_u64(struct rte_tel_data *data, const char *name, uint64_t n);

#endif
