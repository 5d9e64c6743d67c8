/* Waiting until this PE's memory is what it should be. Who writes it may be a plain store by
 * shmem_ptr, so nobody rings: a wait looks again, less and less often. */
#include "internal.h"

#define SATISFIED(name, type) \
	static bool name##_is(const char *call, const type *ivar, int cmp, type value) \
	{ \
		type now = __atomic_load_n(ivar, __ATOMIC_ACQUIRE); \
		switch (cmp) { \
		case SHMEM_CMP_EQ: return now == value; \
		case SHMEM_CMP_NE: return now != value; \
		case SHMEM_CMP_GT: return now > value; \
		case SHMEM_CMP_LE: return now <= value; \
		case SHMEM_CMP_LT: return now < value; \
		case SHMEM_CMP_GE: return now >= value; \
		} \
		fail("%s: %d is no comparison", call, cmp); \
	}

/* For one value, and for a vector of them: how many of those that are not left out are as they should
 * be, with up to `most` of their indices; `left` how many are not left out. */
#define COUNT(name, type, kind, value_type, value_of) \
	static size_t name##_count##kind(const char *call, type *ivars, size_t nelems, \
					 const int *status, int cmp, value_type values, \
					 size_t *indices, size_t most, size_t *left) \
	{ \
		size_t found = 0; \
		*left = 0; \
		for (size_t i = 0; i < nelems; i++) { \
			if (status && status[i]) \
				continue; \
			++*left; \
			if (found < most && name##_is(call, &ivars[i], cmp, value_of)) \
				indices ? (indices[found++] = i) : found++; \
		} \
		return found; \
	}

#define MANY(name, type, kind, value_type) \
	PUBLIC(int, name##_test_all##kind, YASMIN_SHMEM_MANY(type), value_type values) \
	{ \
		size_t left, found = name##_count##kind("shmem_test_all", ivars, nelems, status, \
							cmp, values, NULL, SIZE_MAX, &left); \
		return found == left; \
	} \
	PUBLIC(size_t, name##_test_any##kind, YASMIN_SHMEM_MANY(type), value_type values) \
	{ \
		size_t left, index; \
		return name##_count##kind("shmem_test_any", ivars, nelems, status, cmp, values, \
					  &index, 1, &left) ? index : SIZE_MAX; \
	} \
	PUBLIC(size_t, name##_test_some##kind, YASMIN_SHMEM_SOME(type), value_type values) \
	{ \
		size_t left; \
		return name##_count##kind("shmem_test_some", ivars, nelems, status, cmp, values, \
					  indices, SIZE_MAX, &left); \
	} \
	PUBLIC(void, name##_wait_until_all##kind, YASMIN_SHMEM_MANY(type), value_type values) \
	{ \
		check_up("shmem_wait_until_all"); \
		for (unsigned looks = 0; \
		     !pshmem_##name##_test_all##kind(ivars, nelems, status, cmp, values);) \
			look_again(&looks); \
	} \
	PUBLIC(size_t, name##_wait_until_any##kind, YASMIN_SHMEM_MANY(type), value_type values) \
	{ \
		size_t left, index; \
		check_up("shmem_wait_until_any"); \
		for (unsigned looks = 0;; look_again(&looks)) { \
			if (name##_count##kind("shmem_wait_until_any", ivars, nelems, status, cmp, \
					       values, &index, 1, &left)) \
				return index; \
			if (!left) \
				return SIZE_MAX; \
		} \
	} \
	PUBLIC(size_t, name##_wait_until_some##kind, YASMIN_SHMEM_SOME(type), value_type values) \
	{ \
		size_t left, found; \
		check_up("shmem_wait_until_some"); \
		for (unsigned looks = 0;; look_again(&looks)) { \
			found = name##_count##kind("shmem_wait_until_some", ivars, nelems, status, \
						   cmp, values, indices, SIZE_MAX, &left); \
			if (found || !left) \
				return found; \
		} \
	}

#define FOR_TYPE(name, type) \
	SATISFIED(name, type) \
	COUNT(name, type, , type, values) \
	COUNT(name, type, _vector, type *, values[i]) \
	PUBLIC(int, name##_test, type *ivar, int cmp, type value) \
	{ \
		return name##_is("shmem_test", ivar, cmp, value); \
	} \
	PUBLIC(void, name##_wait_until, type *ivar, int cmp, type value) \
	{ \
		check_up("shmem_wait_until"); \
		for (unsigned looks = 0; !name##_is("shmem_wait_until", ivar, cmp, value);) \
			look_again(&looks); \
	} \
	MANY(name, type, , type) \
	MANY(name, type, _vector, type *)
YASMIN_SHMEM_WAITED(FOR_TYPE)

PUBLIC(uint64_t, signal_wait_until, uint64_t *sig_addr, int cmp, uint64_t value)
{
	check_up("shmem_signal_wait_until");
	/* The value that ended the wait, and not a later one. */
	for (unsigned looks = 0;; look_again(&looks)) {
		uint64_t now = __atomic_load_n(sig_addr, __ATOMIC_ACQUIRE);
		if (uint64_is("shmem_signal_wait_until", &now, cmp, value))
			return now;
	}
}

/* Deprecated. */
PUBLIC(void, wait_until, long *ivar, int cmp, long value)
{
	pshmem_long_wait_until(ivar, cmp, value);
}

PUBLIC(void, wait, long *ivar, long value)
{
	pshmem_long_wait_until(ivar, SHMEM_CMP_NE, value);
}

#define OLD(name, type) \
	PUBLIC(void, name##_wait, type *ivar, type value) \
	{ \
		pshmem_##name##_wait_until(ivar, SHMEM_CMP_NE, value); \
	}
OLD(short, short)
OLD(int, int)
OLD(long, long)
OLD(longlong, long long)
