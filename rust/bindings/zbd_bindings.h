/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What zbd calls in C and the kernel crate's `bindings` do not offer.
 *
 * bindgen reads this file (see Kbuild). Types stay those of `kernel::bindings`;
 * only functions, the types of the compression libraries and the constants
 * below are generated.
 *
 * Headers sorted alphabetically.
 */
#ifndef ZBD_BINDINGS_H
#define ZBD_BINDINGS_H

#include <linux/bio.h>
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/device.h>
#include <linux/device/class.h>
#include <linux/highmem.h>
#include <linux/lz4.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/sysfs.h>
#include <linux/workqueue.h>
#include <linux/xxhash.h>
#include <linux/zstd.h>

/*
 * Macros that look like functions, made functions. bindgen writes a callable
 * wrapper for every inline function that Kbuild lists.
 */
static inline struct device *zbd_disk_to_dev(struct gendisk *disk)
{
	return disk_to_dev(disk);
}

static inline struct gendisk *zbd_dev_to_disk(struct device *dev)
{
	return dev_to_disk(dev);
}

static inline void zbd_cond_resched(void)
{
	cond_resched();
}

/*
 * Attributes are filled in here because the structs differ between versions and
 * configurations. Those of disks and those of the class need lock classes of
 * their own: storing to the latter removes the former.
 */
static inline void
zbd_device_attr_init(struct device_attribute *attr, const char *name,
		     umode_t mode,
		     ssize_t (*show)(struct device *dev,
				     struct device_attribute *attr, char *buf),
		     ssize_t (*store)(struct device *dev,
				      struct device_attribute *attr,
				      const char *buf, size_t count))
{
	sysfs_attr_init(&attr->attr);
	attr->attr.name = name;
	attr->attr.mode = mode;
	attr->show = show;
	attr->store = store;
}

static inline void
zbd_class_attr_init(struct class_attribute *attr, const char *name,
		    umode_t mode,
		    ssize_t (*show)(const struct class *class,
				    const struct class_attribute *attr,
				    char *buf),
		    ssize_t (*store)(const struct class *class,
				     const struct class_attribute *attr,
				     const char *buf, size_t count))
{
	sysfs_attr_init(&attr->attr);
	attr->attr.name = name;
	attr->attr.mode = mode;
	attr->show = show;
	attr->store = store;
}

static inline void zbd_attr_group_init(struct attribute_group *group,
				       const char *name,
				       struct attribute **attrs)
{
	group->name = name;
	group->attrs = attrs;
}

/*
 * Sizes as the C compiler sees them, for a test against what bindgen made.
 * The order is that of rust/linux/tests/layout.rs.
 */
static inline size_t zbd_sizeof(unsigned int which)
{
	static const size_t sizes[] = {
		sizeof(struct attribute_group),
		sizeof(struct bio),
		sizeof(struct bio_set),
		sizeof(struct bio_vec),
		sizeof(struct blk_mq_hw_ctx),
		sizeof(struct blk_mq_ops),
		sizeof(struct blk_mq_tag_set),
		sizeof(struct block_device),
		sizeof(struct block_device_operations),
		sizeof(struct bvec_iter),
		sizeof(struct class),
		sizeof(struct class_attribute),
		sizeof(struct delayed_work),
		sizeof(struct device_attribute),
		sizeof(struct gendisk),
		sizeof(struct page),
		sizeof(struct queue_limits),
		sizeof(struct request),
		sizeof(struct request_queue),
		sizeof(zstd_parameters),
	};

	return which < ARRAY_SIZE(sizes) ? sizes[which] : 0;
}

#ifdef __BINDGEN__
/*
 * Macros with a cast in them: bindgen sees only constants. The names lose their
 * prefix in the generated file.
 */
const blk_features_t RUST_CONST_HELPER_BLK_FEAT_WRITE_CACHE = BLK_FEAT_WRITE_CACHE;
const blk_features_t RUST_CONST_HELPER_BLK_FEAT_FUA = BLK_FEAT_FUA;
const blk_features_t RUST_CONST_HELPER_BLK_FEAT_ROTATIONAL = BLK_FEAT_ROTATIONAL;
const blk_mode_t RUST_CONST_HELPER_BLK_OPEN_READ = BLK_OPEN_READ;
const blk_mode_t RUST_CONST_HELPER_BLK_OPEN_WRITE = BLK_OPEN_WRITE;
const blk_opf_t RUST_CONST_HELPER_REQ_BACKGROUND = REQ_BACKGROUND;
const blk_opf_t RUST_CONST_HELPER_REQ_FUA = REQ_FUA;
const blk_opf_t RUST_CONST_HELPER_REQ_IDLE = REQ_IDLE;
const blk_opf_t RUST_CONST_HELPER_REQ_META = REQ_META;
const blk_opf_t RUST_CONST_HELPER_REQ_PREFLUSH = REQ_PREFLUSH;
const blk_opf_t RUST_CONST_HELPER_REQ_RAHEAD = REQ_RAHEAD;
const blk_opf_t RUST_CONST_HELPER_REQ_SYNC = REQ_SYNC;
const blk_status_t RUST_CONST_HELPER_BLK_STS_DEV_RESOURCE = BLK_STS_DEV_RESOURCE;
const blk_status_t RUST_CONST_HELPER_BLK_STS_NOTSUPP = BLK_STS_NOTSUPP;
const blk_status_t RUST_CONST_HELPER_BLK_STS_RESOURCE = BLK_STS_RESOURCE;
const gfp_t RUST_CONST_HELPER_GFP_NOIO = GFP_NOIO;
const unsigned int RUST_CONST_HELPER_BIO_VECS_MAX = BIO_MAX_VECS;
const int RUST_CONST_HELPER_MAX_LZ4_WORK_BYTES = LZ4_MEM_COMPRESS;
#endif

#endif /* ZBD_BINDINGS_H */
