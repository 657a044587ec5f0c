#define _GNU_SOURCE /* fopencookie */
#include "wrapper.h"

_Static_assert(sizeof(((struct rte_mbuf *)0)->refcnt) == 2, "mbuf refcnt is 16 bits");
_Static_assert(sizeof(((struct rte_mbuf *)0)->nb_segs) == 2, "mbuf nb_segs is 16 bits");
_Static_assert(sizeof(((struct rte_mbuf *)0)->pkt_len) == 4, "mbuf pkt_len is 32 bits");
_Static_assert(sizeof(((struct rte_mbuf *)0)->data_len) == 2, "mbuf data_len is 16 bits");

int dpdk_sys_log_through(void *cookie, ssize_t (*write)(void *cookie, const char *bytes, size_t len))
{
	cookie_io_functions_t functions = { .write = write };
	FILE *stream = fopencookie(cookie, "w", functions);

	return stream == NULL ? -1 : rte_openlog_stream(stream);
}

int dpdk_sys_errno(void)
{
	return rte_errno;
}

unsigned int dpdk_sys_lcore_id(void)
{
	return rte_lcore_id();
}

uint16_t dpdk_sys_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	return rte_eth_rx_burst(port, queue, mbufs, n);
}

uint16_t dpdk_sys_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	return rte_eth_tx_burst(port, queue, mbufs, n);
}

uint16_t dpdk_sys_tx_prepare(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	return rte_eth_tx_prepare(port, queue, mbufs, n);
}

/* Everything but the common case of the two functions below, kept out of their way. */
static __rte_noinline struct rte_mbuf *alloc_uncached(struct rte_mempool *pool)
{
	return rte_pktmbuf_alloc(pool);
}

static __rte_noinline void free_uncached(struct rte_mbuf *m)
{
	rte_pktmbuf_free(m);
}

/* rte_pktmbuf_alloc() where this core's cache has a buffer. */
struct rte_mbuf *dpdk_sys_mbuf_alloc(struct rte_mempool *pool)
{
	struct rte_mempool_cache *cache = rte_mempool_default_cache(pool, rte_lcore_id());
	struct rte_mbuf *m;

	if (unlikely(cache == NULL || cache->len == 0))
		return alloc_uncached(pool);
	m = cache->objs[--cache->len];
	/* Who takes one soon takes another. */
	if (likely(cache->len > 0)) {
		struct rte_mbuf *next = cache->objs[cache->len - 1];

		rte_mbuf_prefetch_part1(next);
		rte_mbuf_prefetch_part2(next);
	}
	rte_pktmbuf_reset(m);
	return m;
}

int dpdk_sys_mbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int n)
{
	return rte_pktmbuf_alloc_bulk(pool, mbufs, n);
}

/* rte_pktmbuf_free() of one buffer of its own that nobody shares, where this core's cache has room. */
void dpdk_sys_mbuf_free(struct rte_mbuf *m)
{
	struct rte_mempool_cache *cache;

	if (unlikely(m->nb_segs != 1 || m->next != NULL || !RTE_MBUF_DIRECT(m) || rte_mbuf_refcnt_read(m) != 1))
		return free_uncached(m);
	cache = rte_mempool_default_cache(m->pool, rte_lcore_id());
	if (unlikely(cache == NULL || cache->len >= cache->flushthresh))
		return free_uncached(m);
	cache->objs[cache->len++] = m;
}

struct rte_mbuf *dpdk_sys_mbuf_share(struct rte_mempool *pool, struct rte_mbuf *m, uint16_t offset, uint16_t len)
{
	struct rte_mbuf *mi = dpdk_sys_mbuf_alloc(pool);

	if (mi == NULL)
		return NULL;
	rte_pktmbuf_attach(mi, m);
	mi->data_off = (uint16_t)(m->data_off + offset);
	mi->data_len = len;
	mi->pkt_len = len;
	return mi;
}

void dpdk_sys_mempool_put_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int n)
{
	rte_mempool_put_bulk(pool, (void *const *)mbufs, n);
}

uint16_t dpdk_sys_pool_data_room(struct rte_mempool *pool)
{
	return rte_pktmbuf_data_room_size(pool);
}

uint16_t dpdk_sys_pool_priv_size(struct rte_mempool *pool)
{
	return rte_pktmbuf_priv_size(pool);
}

uint32_t dpdk_sys_pool_size(const struct rte_mempool *pool)
{
	return pool->size;
}

uint32_t dpdk_sys_pool_cache_size(const struct rte_mempool *pool)
{
	return pool->cache_size;
}

unsigned int dpdk_sys_ring_dequeue(struct rte_ring *ring, struct rte_mbuf **mbufs, unsigned int n)
{
	return rte_ring_dequeue_burst(ring, (void **)mbufs, n, NULL);
}

unsigned int dpdk_sys_ring_count(const struct rte_ring *ring)
{
	return rte_ring_count(ring);
}

unsigned int dpdk_sys_ring_flags_spsc(void)
{
	return RING_F_SP_ENQ | RING_F_SC_DEQ;
}

int dpdk_sys_link(uint16_t port, struct dpdk_sys_link *link)
{
	struct rte_eth_link raw = { 0 };
	int rc = rte_eth_link_get_nowait(port, &raw);

	link->speed_mbps = raw.link_speed;
	link->up = raw.link_status == RTE_ETH_LINK_UP;
	link->full_duplex = raw.link_duplex == RTE_ETH_LINK_FULL_DUPLEX;
	return rc;
}

#if RTE_VERSION < RTE_VERSION_NUM(23, 3, 0, 0)
#define RTE_TEL_UINT_VAL RTE_TEL_U64_VAL
#define rte_tel_data_add_array_uint rte_tel_data_add_array_u64
#define rte_tel_data_add_dict_uint rte_tel_data_add_dict_u64
#endif

int dpdk_sys_tel_start_u64_array(struct rte_tel_data *data)
{
	return rte_tel_data_start_array(data, RTE_TEL_UINT_VAL);
}

int dpdk_sys_tel_add_array_u64(struct rte_tel_data *data, uint64_t n)
{
	return rte_tel_data_add_array_uint(data, n);
}

int dpdk_sys_tel_add_dict_u64(struct rte_tel_data *data, const char *name, uint64_t n)
{
	return rte_tel_data_add_dict_uint(data, name, n);
}
