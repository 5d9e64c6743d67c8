/*
 * C11: one name for all types. A call with one argument more begins with a context. The type is
 * that of what the first pointer points at, whatever its qualifiers.
 */
#ifndef SHMEM_GENERIC_H
#define SHMEM_GENERIC_H

#define YASMIN_SHMEM_COUNT_(a, b, c, d, e, f, g, h, i, n, ...) n
#define YASMIN_SHMEM_COUNT(...) YASMIN_SHMEM_COUNT_(__VA_ARGS__, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define YASMIN_SHMEM_CAT_(a, b) a##b
#define YASMIN_SHMEM_CAT(a, b) YASMIN_SHMEM_CAT_(a, b)
#define YASMIN_SHMEM_PICK(name, ...) \
	YASMIN_SHMEM_CAT(name, YASMIN_SHMEM_COUNT(__VA_ARGS__))(__VA_ARGS__)

#define YASMIN_SHMEM_OF_RMA(p, before, after) \
	_Generic(*(p), \
		 float: shmem_##before##float_##after, \
		 double: shmem_##before##double_##after, \
		 long double: shmem_##before##longdouble_##after, \
		 char: shmem_##before##char_##after, \
		 signed char: shmem_##before##schar_##after, \
		 short: shmem_##before##short_##after, \
		 int: shmem_##before##int_##after, \
		 long: shmem_##before##long_##after, \
		 long long: shmem_##before##longlong_##after, \
		 unsigned char: shmem_##before##uchar_##after, \
		 unsigned short: shmem_##before##ushort_##after, \
		 unsigned int: shmem_##before##uint_##after, \
		 unsigned long: shmem_##before##ulong_##after, \
		 unsigned long long: shmem_##before##ulonglong_##after)

#define YASMIN_SHMEM_OF_INTEGER(p, before, after) \
	_Generic(*(p), \
		 int: shmem_##before##int_##after, \
		 long: shmem_##before##long_##after, \
		 long long: shmem_##before##longlong_##after, \
		 unsigned int: shmem_##before##uint_##after, \
		 unsigned long: shmem_##before##ulong_##after, \
		 unsigned long long: shmem_##before##ulonglong_##after)

#define YASMIN_SHMEM_OF_EXTENDED(p, before, after) \
	_Generic(*(p), \
		 int: shmem_##before##int_##after, \
		 long: shmem_##before##long_##after, \
		 long long: shmem_##before##longlong_##after, \
		 unsigned int: shmem_##before##uint_##after, \
		 unsigned long: shmem_##before##ulong_##after, \
		 unsigned long long: shmem_##before##ulonglong_##after, \
		 float: shmem_##before##float_##after, \
		 double: shmem_##before##double_##after)

#define YASMIN_SHMEM_OF_BITWISE(p, before, after) \
	_Generic(*(p), \
		 int: shmem_##before##int32_##after, \
		 long: shmem_##before##int64_##after, \
		 unsigned int: shmem_##before##uint_##after, \
		 unsigned long: shmem_##before##ulong_##after, \
		 unsigned long long: shmem_##before##ulonglong_##after)

#define YASMIN_SHMEM_OF_WAITED(p, before, after) \
	_Generic(*(p), \
		 int: shmem_##before##int_##after, \
		 long: shmem_##before##long_##after, \
		 long long: shmem_##before##longlong_##after, \
		 unsigned int: shmem_##before##uint_##after, \
		 unsigned long: shmem_##before##ulong_##after, \
		 unsigned long long: shmem_##before##ulonglong_##after, \
		 short: shmem_##before##short_##after, \
		 unsigned short: shmem_##before##ushort_##after)

#define YASMIN_SHMEM_OF_REDUCED_BITS(p, before, after) \
	_Generic(*(p), \
		 signed char: shmem_##before##int8_##after, \
		 short: shmem_##before##int16_##after, \
		 int: shmem_##before##int32_##after, \
		 long: shmem_##before##int64_##after, \
		 unsigned char: shmem_##before##uchar_##after, \
		 unsigned short: shmem_##before##ushort_##after, \
		 unsigned int: shmem_##before##uint_##after, \
		 unsigned long: shmem_##before##ulong_##after, \
		 unsigned long long: shmem_##before##ulonglong_##after)

#define YASMIN_SHMEM_OF_REDUCED_SUM(p, before, after) \
	_Generic(*(p), \
		 float: shmem_##before##float_##after, \
		 double: shmem_##before##double_##after, \
		 long double: shmem_##before##longdouble_##after, \
		 char: shmem_##before##char_##after, \
		 signed char: shmem_##before##schar_##after, \
		 short: shmem_##before##short_##after, \
		 int: shmem_##before##int_##after, \
		 long: shmem_##before##long_##after, \
		 long long: shmem_##before##longlong_##after, \
		 unsigned char: shmem_##before##uchar_##after, \
		 unsigned short: shmem_##before##ushort_##after, \
		 unsigned int: shmem_##before##uint_##after, \
		 unsigned long: shmem_##before##ulong_##after, \
		 unsigned long long: shmem_##before##ulonglong_##after, \
		 double _Complex: shmem_##before##complexd_##after, \
		 float _Complex: shmem_##before##complexf_##after)

#define shmem_put(...) YASMIN_SHMEM_PICK(yasmin_shmem_put_, __VA_ARGS__)
#define yasmin_shmem_put_4(dest, source, nelems, pe) \
	YASMIN_SHMEM_OF_RMA(dest, , put)(dest, source, nelems, pe)
#define yasmin_shmem_put_5(ctx, dest, source, nelems, pe) \
	YASMIN_SHMEM_OF_RMA(dest, ctx_, put)(ctx, dest, source, nelems, pe)
#define shmem_get(...) YASMIN_SHMEM_PICK(yasmin_shmem_get_, __VA_ARGS__)
#define yasmin_shmem_get_4(dest, source, nelems, pe) \
	YASMIN_SHMEM_OF_RMA(dest, , get)(dest, source, nelems, pe)
#define yasmin_shmem_get_5(ctx, dest, source, nelems, pe) \
	YASMIN_SHMEM_OF_RMA(dest, ctx_, get)(ctx, dest, source, nelems, pe)
#define shmem_put_nbi(...) YASMIN_SHMEM_PICK(yasmin_shmem_put_nbi_, __VA_ARGS__)
#define yasmin_shmem_put_nbi_4(dest, source, nelems, pe) \
	YASMIN_SHMEM_OF_RMA(dest, , put_nbi)(dest, source, nelems, pe)
#define yasmin_shmem_put_nbi_5(ctx, dest, source, nelems, pe) \
	YASMIN_SHMEM_OF_RMA(dest, ctx_, put_nbi)(ctx, dest, source, nelems, pe)
#define shmem_get_nbi(...) YASMIN_SHMEM_PICK(yasmin_shmem_get_nbi_, __VA_ARGS__)
#define yasmin_shmem_get_nbi_4(dest, source, nelems, pe) \
	YASMIN_SHMEM_OF_RMA(dest, , get_nbi)(dest, source, nelems, pe)
#define yasmin_shmem_get_nbi_5(ctx, dest, source, nelems, pe) \
	YASMIN_SHMEM_OF_RMA(dest, ctx_, get_nbi)(ctx, dest, source, nelems, pe)
#define shmem_p(...) YASMIN_SHMEM_PICK(yasmin_shmem_p_, __VA_ARGS__)
#define yasmin_shmem_p_3(dest, value, pe) \
	YASMIN_SHMEM_OF_RMA(dest, , p)(dest, value, pe)
#define yasmin_shmem_p_4(ctx, dest, value, pe) \
	YASMIN_SHMEM_OF_RMA(dest, ctx_, p)(ctx, dest, value, pe)
#define shmem_g(...) YASMIN_SHMEM_PICK(yasmin_shmem_g_, __VA_ARGS__)
#define yasmin_shmem_g_2(source, pe) \
	YASMIN_SHMEM_OF_RMA(source, , g)(source, pe)
#define yasmin_shmem_g_3(ctx, source, pe) \
	YASMIN_SHMEM_OF_RMA(source, ctx_, g)(ctx, source, pe)
#define shmem_iput(...) YASMIN_SHMEM_PICK(yasmin_shmem_iput_, __VA_ARGS__)
#define yasmin_shmem_iput_6(dest, source, dst, sst, nelems, pe) \
	YASMIN_SHMEM_OF_RMA(dest, , iput)(dest, source, dst, sst, nelems, pe)
#define yasmin_shmem_iput_7(ctx, dest, source, dst, sst, nelems, pe) \
	YASMIN_SHMEM_OF_RMA(dest, ctx_, iput)(ctx, dest, source, dst, sst, nelems, pe)
#define shmem_iget(...) YASMIN_SHMEM_PICK(yasmin_shmem_iget_, __VA_ARGS__)
#define yasmin_shmem_iget_6(dest, source, dst, sst, nelems, pe) \
	YASMIN_SHMEM_OF_RMA(dest, , iget)(dest, source, dst, sst, nelems, pe)
#define yasmin_shmem_iget_7(ctx, dest, source, dst, sst, nelems, pe) \
	YASMIN_SHMEM_OF_RMA(dest, ctx_, iget)(ctx, dest, source, dst, sst, nelems, pe)
#define shmem_put_signal(...) YASMIN_SHMEM_PICK(yasmin_shmem_put_signal_, __VA_ARGS__)
#define yasmin_shmem_put_signal_7(dest, source, nelems, sig_addr, signal, sig_op, pe) \
	YASMIN_SHMEM_OF_RMA(dest, , put_signal)(dest, source, nelems, sig_addr, signal, sig_op, pe)
#define yasmin_shmem_put_signal_8(ctx, dest, source, nelems, sig_addr, signal, sig_op, pe) \
	YASMIN_SHMEM_OF_RMA(dest, ctx_, put_signal)(ctx, dest, source, nelems, sig_addr, signal, sig_op, pe)
#define shmem_put_signal_nbi(...) YASMIN_SHMEM_PICK(yasmin_shmem_put_signal_nbi_, __VA_ARGS__)
#define yasmin_shmem_put_signal_nbi_7(dest, source, nelems, sig_addr, signal, sig_op, pe) \
	YASMIN_SHMEM_OF_RMA(dest, , put_signal_nbi)(dest, source, nelems, sig_addr, signal, sig_op, pe)
#define yasmin_shmem_put_signal_nbi_8(ctx, dest, source, nelems, sig_addr, signal, sig_op, pe) \
	YASMIN_SHMEM_OF_RMA(dest, ctx_, put_signal_nbi)(ctx, dest, source, nelems, sig_addr, signal, sig_op, pe)
#define shmem_atomic_fetch(...) YASMIN_SHMEM_PICK(yasmin_shmem_atomic_fetch_, __VA_ARGS__)
#define yasmin_shmem_atomic_fetch_2(source, pe) \
	YASMIN_SHMEM_OF_EXTENDED(source, , atomic_fetch)(source, pe)
#define yasmin_shmem_atomic_fetch_3(ctx, source, pe) \
	YASMIN_SHMEM_OF_EXTENDED(source, ctx_, atomic_fetch)(ctx, source, pe)
#define shmem_atomic_set(...) YASMIN_SHMEM_PICK(yasmin_shmem_atomic_set_, __VA_ARGS__)
#define yasmin_shmem_atomic_set_3(dest, value, pe) \
	YASMIN_SHMEM_OF_EXTENDED(dest, , atomic_set)(dest, value, pe)
#define yasmin_shmem_atomic_set_4(ctx, dest, value, pe) \
	YASMIN_SHMEM_OF_EXTENDED(dest, ctx_, atomic_set)(ctx, dest, value, pe)
#define shmem_atomic_swap(...) YASMIN_SHMEM_PICK(yasmin_shmem_atomic_swap_, __VA_ARGS__)
#define yasmin_shmem_atomic_swap_3(dest, value, pe) \
	YASMIN_SHMEM_OF_EXTENDED(dest, , atomic_swap)(dest, value, pe)
#define yasmin_shmem_atomic_swap_4(ctx, dest, value, pe) \
	YASMIN_SHMEM_OF_EXTENDED(dest, ctx_, atomic_swap)(ctx, dest, value, pe)
#define shmem_atomic_compare_swap(...) \
	YASMIN_SHMEM_PICK(yasmin_shmem_atomic_compare_swap_, __VA_ARGS__)
#define yasmin_shmem_atomic_compare_swap_4(dest, cond, value, pe) \
	YASMIN_SHMEM_OF_INTEGER(dest, , atomic_compare_swap)(dest, cond, value, pe)
#define yasmin_shmem_atomic_compare_swap_5(ctx, dest, cond, value, pe) \
	YASMIN_SHMEM_OF_INTEGER(dest, ctx_, atomic_compare_swap)(ctx, dest, cond, value, pe)
#define shmem_atomic_fetch_inc(...) YASMIN_SHMEM_PICK(yasmin_shmem_atomic_fetch_inc_, __VA_ARGS__)
#define yasmin_shmem_atomic_fetch_inc_2(dest, pe) \
	YASMIN_SHMEM_OF_INTEGER(dest, , atomic_fetch_inc)(dest, pe)
#define yasmin_shmem_atomic_fetch_inc_3(ctx, dest, pe) \
	YASMIN_SHMEM_OF_INTEGER(dest, ctx_, atomic_fetch_inc)(ctx, dest, pe)
#define shmem_atomic_inc(...) YASMIN_SHMEM_PICK(yasmin_shmem_atomic_inc_, __VA_ARGS__)
#define yasmin_shmem_atomic_inc_2(dest, pe) \
	YASMIN_SHMEM_OF_INTEGER(dest, , atomic_inc)(dest, pe)
#define yasmin_shmem_atomic_inc_3(ctx, dest, pe) \
	YASMIN_SHMEM_OF_INTEGER(dest, ctx_, atomic_inc)(ctx, dest, pe)
#define shmem_atomic_fetch_add(...) YASMIN_SHMEM_PICK(yasmin_shmem_atomic_fetch_add_, __VA_ARGS__)
#define yasmin_shmem_atomic_fetch_add_3(dest, value, pe) \
	YASMIN_SHMEM_OF_INTEGER(dest, , atomic_fetch_add)(dest, value, pe)
#define yasmin_shmem_atomic_fetch_add_4(ctx, dest, value, pe) \
	YASMIN_SHMEM_OF_INTEGER(dest, ctx_, atomic_fetch_add)(ctx, dest, value, pe)
#define shmem_atomic_add(...) YASMIN_SHMEM_PICK(yasmin_shmem_atomic_add_, __VA_ARGS__)
#define yasmin_shmem_atomic_add_3(dest, value, pe) \
	YASMIN_SHMEM_OF_INTEGER(dest, , atomic_add)(dest, value, pe)
#define yasmin_shmem_atomic_add_4(ctx, dest, value, pe) \
	YASMIN_SHMEM_OF_INTEGER(dest, ctx_, atomic_add)(ctx, dest, value, pe)
#define shmem_atomic_fetch_and(...) YASMIN_SHMEM_PICK(yasmin_shmem_atomic_fetch_and_, __VA_ARGS__)
#define yasmin_shmem_atomic_fetch_and_3(dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(dest, , atomic_fetch_and)(dest, value, pe)
#define yasmin_shmem_atomic_fetch_and_4(ctx, dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(dest, ctx_, atomic_fetch_and)(ctx, dest, value, pe)
#define shmem_atomic_and(...) YASMIN_SHMEM_PICK(yasmin_shmem_atomic_and_, __VA_ARGS__)
#define yasmin_shmem_atomic_and_3(dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(dest, , atomic_and)(dest, value, pe)
#define yasmin_shmem_atomic_and_4(ctx, dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(dest, ctx_, atomic_and)(ctx, dest, value, pe)
#define shmem_atomic_fetch_or(...) YASMIN_SHMEM_PICK(yasmin_shmem_atomic_fetch_or_, __VA_ARGS__)
#define yasmin_shmem_atomic_fetch_or_3(dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(dest, , atomic_fetch_or)(dest, value, pe)
#define yasmin_shmem_atomic_fetch_or_4(ctx, dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(dest, ctx_, atomic_fetch_or)(ctx, dest, value, pe)
#define shmem_atomic_or(...) YASMIN_SHMEM_PICK(yasmin_shmem_atomic_or_, __VA_ARGS__)
#define yasmin_shmem_atomic_or_3(dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(dest, , atomic_or)(dest, value, pe)
#define yasmin_shmem_atomic_or_4(ctx, dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(dest, ctx_, atomic_or)(ctx, dest, value, pe)
#define shmem_atomic_fetch_xor(...) YASMIN_SHMEM_PICK(yasmin_shmem_atomic_fetch_xor_, __VA_ARGS__)
#define yasmin_shmem_atomic_fetch_xor_3(dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(dest, , atomic_fetch_xor)(dest, value, pe)
#define yasmin_shmem_atomic_fetch_xor_4(ctx, dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(dest, ctx_, atomic_fetch_xor)(ctx, dest, value, pe)
#define shmem_atomic_xor(...) YASMIN_SHMEM_PICK(yasmin_shmem_atomic_xor_, __VA_ARGS__)
#define yasmin_shmem_atomic_xor_3(dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(dest, , atomic_xor)(dest, value, pe)
#define yasmin_shmem_atomic_xor_4(ctx, dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(dest, ctx_, atomic_xor)(ctx, dest, value, pe)
#define shmem_atomic_fetch_nbi(...) YASMIN_SHMEM_PICK(yasmin_shmem_atomic_fetch_nbi_, __VA_ARGS__)
#define yasmin_shmem_atomic_fetch_nbi_3(fetch, source, pe) \
	YASMIN_SHMEM_OF_EXTENDED(fetch, , atomic_fetch_nbi)(fetch, source, pe)
#define yasmin_shmem_atomic_fetch_nbi_4(ctx, fetch, source, pe) \
	YASMIN_SHMEM_OF_EXTENDED(fetch, ctx_, atomic_fetch_nbi)(ctx, fetch, source, pe)
#define shmem_atomic_swap_nbi(...) YASMIN_SHMEM_PICK(yasmin_shmem_atomic_swap_nbi_, __VA_ARGS__)
#define yasmin_shmem_atomic_swap_nbi_4(fetch, dest, value, pe) \
	YASMIN_SHMEM_OF_EXTENDED(fetch, , atomic_swap_nbi)(fetch, dest, value, pe)
#define yasmin_shmem_atomic_swap_nbi_5(ctx, fetch, dest, value, pe) \
	YASMIN_SHMEM_OF_EXTENDED(fetch, ctx_, atomic_swap_nbi)(ctx, fetch, dest, value, pe)
#define shmem_atomic_compare_swap_nbi(...) \
	YASMIN_SHMEM_PICK(yasmin_shmem_atomic_compare_swap_nbi_, __VA_ARGS__)
#define yasmin_shmem_atomic_compare_swap_nbi_5(fetch, dest, cond, value, pe) \
	YASMIN_SHMEM_OF_INTEGER(fetch, , atomic_compare_swap_nbi)(fetch, dest, cond, value, pe)
#define yasmin_shmem_atomic_compare_swap_nbi_6(ctx, fetch, dest, cond, value, pe) \
	YASMIN_SHMEM_OF_INTEGER(fetch, ctx_, atomic_compare_swap_nbi)(ctx, fetch, dest, cond, value, pe)
#define shmem_atomic_fetch_inc_nbi(...) \
	YASMIN_SHMEM_PICK(yasmin_shmem_atomic_fetch_inc_nbi_, __VA_ARGS__)
#define yasmin_shmem_atomic_fetch_inc_nbi_3(fetch, dest, pe) \
	YASMIN_SHMEM_OF_INTEGER(fetch, , atomic_fetch_inc_nbi)(fetch, dest, pe)
#define yasmin_shmem_atomic_fetch_inc_nbi_4(ctx, fetch, dest, pe) \
	YASMIN_SHMEM_OF_INTEGER(fetch, ctx_, atomic_fetch_inc_nbi)(ctx, fetch, dest, pe)
#define shmem_atomic_fetch_add_nbi(...) \
	YASMIN_SHMEM_PICK(yasmin_shmem_atomic_fetch_add_nbi_, __VA_ARGS__)
#define yasmin_shmem_atomic_fetch_add_nbi_4(fetch, dest, value, pe) \
	YASMIN_SHMEM_OF_INTEGER(fetch, , atomic_fetch_add_nbi)(fetch, dest, value, pe)
#define yasmin_shmem_atomic_fetch_add_nbi_5(ctx, fetch, dest, value, pe) \
	YASMIN_SHMEM_OF_INTEGER(fetch, ctx_, atomic_fetch_add_nbi)(ctx, fetch, dest, value, pe)
#define shmem_atomic_fetch_and_nbi(...) \
	YASMIN_SHMEM_PICK(yasmin_shmem_atomic_fetch_and_nbi_, __VA_ARGS__)
#define yasmin_shmem_atomic_fetch_and_nbi_4(fetch, dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(fetch, , atomic_fetch_and_nbi)(fetch, dest, value, pe)
#define yasmin_shmem_atomic_fetch_and_nbi_5(ctx, fetch, dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(fetch, ctx_, atomic_fetch_and_nbi)(ctx, fetch, dest, value, pe)
#define shmem_atomic_fetch_or_nbi(...) \
	YASMIN_SHMEM_PICK(yasmin_shmem_atomic_fetch_or_nbi_, __VA_ARGS__)
#define yasmin_shmem_atomic_fetch_or_nbi_4(fetch, dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(fetch, , atomic_fetch_or_nbi)(fetch, dest, value, pe)
#define yasmin_shmem_atomic_fetch_or_nbi_5(ctx, fetch, dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(fetch, ctx_, atomic_fetch_or_nbi)(ctx, fetch, dest, value, pe)
#define shmem_atomic_fetch_xor_nbi(...) \
	YASMIN_SHMEM_PICK(yasmin_shmem_atomic_fetch_xor_nbi_, __VA_ARGS__)
#define yasmin_shmem_atomic_fetch_xor_nbi_4(fetch, dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(fetch, , atomic_fetch_xor_nbi)(fetch, dest, value, pe)
#define yasmin_shmem_atomic_fetch_xor_nbi_5(ctx, fetch, dest, value, pe) \
	YASMIN_SHMEM_OF_BITWISE(fetch, ctx_, atomic_fetch_xor_nbi)(ctx, fetch, dest, value, pe)

/* Deprecated. */
#define shmem_fetch(...) shmem_atomic_fetch(__VA_ARGS__)
#define shmem_set(...) shmem_atomic_set(__VA_ARGS__)
#define shmem_swap(...) shmem_atomic_swap(__VA_ARGS__)
#define shmem_cswap(...) shmem_atomic_compare_swap(__VA_ARGS__)
#define shmem_finc(...) shmem_atomic_fetch_inc(__VA_ARGS__)
#define shmem_inc(...) shmem_atomic_inc(__VA_ARGS__)
#define shmem_fadd(...) shmem_atomic_fetch_add(__VA_ARGS__)
#define shmem_add(...) shmem_atomic_add(__VA_ARGS__)

#define shmem_broadcast(team, dest, source, nelems, root) \
	YASMIN_SHMEM_OF_RMA(dest, , broadcast)(team, dest, source, nelems, root)
#define shmem_collect(team, dest, source, nelems) \
	YASMIN_SHMEM_OF_RMA(dest, , collect)(team, dest, source, nelems)
#define shmem_fcollect(team, dest, source, nelems) \
	YASMIN_SHMEM_OF_RMA(dest, , fcollect)(team, dest, source, nelems)
#define shmem_alltoall(team, dest, source, nelems) \
	YASMIN_SHMEM_OF_RMA(dest, , alltoall)(team, dest, source, nelems)
#define shmem_alltoalls(team, dest, source, dst, sst, nelems) \
	YASMIN_SHMEM_OF_RMA(dest, , alltoalls)(team, dest, source, dst, sst, nelems)
#define shmem_and_reduce(team, dest, source, nelems) \
	YASMIN_SHMEM_OF_REDUCED_BITS(dest, , and_reduce)(team, dest, source, nelems)
#define shmem_or_reduce(team, dest, source, nelems) \
	YASMIN_SHMEM_OF_REDUCED_BITS(dest, , or_reduce)(team, dest, source, nelems)
#define shmem_xor_reduce(team, dest, source, nelems) \
	YASMIN_SHMEM_OF_REDUCED_BITS(dest, , xor_reduce)(team, dest, source, nelems)
#define shmem_min_reduce(team, dest, source, nelems) \
	YASMIN_SHMEM_OF_RMA(dest, , min_reduce)(team, dest, source, nelems)
#define shmem_max_reduce(team, dest, source, nelems) \
	YASMIN_SHMEM_OF_RMA(dest, , max_reduce)(team, dest, source, nelems)
#define shmem_sum_reduce(team, dest, source, nelems) \
	YASMIN_SHMEM_OF_REDUCED_SUM(dest, , sum_reduce)(team, dest, source, nelems)
#define shmem_prod_reduce(team, dest, source, nelems) \
	YASMIN_SHMEM_OF_REDUCED_SUM(dest, , prod_reduce)(team, dest, source, nelems)
#define shmem_sync(...) \
	YASMIN_SHMEM_PICK(yasmin_shmem_sync_, __VA_ARGS__)
#define yasmin_shmem_sync_1(team) shmem_team_sync(team)
#define yasmin_shmem_sync_4(start, stride, size, psync) (shmem_sync)(start, stride, size, psync)
#define shmem_wait_until(ivar, cmp, value) \
	YASMIN_SHMEM_OF_WAITED(ivar, , wait_until)(ivar, cmp, value)
#define shmem_test(ivar, cmp, value) YASMIN_SHMEM_OF_WAITED(ivar, , test)(ivar, cmp, value)
#define shmem_wait_until_all(ivars, nelems, status, cmp, value) \
	YASMIN_SHMEM_OF_WAITED(ivars, , wait_until_all)(ivars, nelems, status, cmp, value)
#define shmem_wait_until_any(ivars, nelems, status, cmp, value) \
	YASMIN_SHMEM_OF_WAITED(ivars, , wait_until_any)(ivars, nelems, status, cmp, value)
#define shmem_wait_until_some(ivars, nelems, indices, status, cmp, value) \
	YASMIN_SHMEM_OF_WAITED(ivars, , wait_until_some)(ivars, nelems, indices, status, cmp, value)
#define shmem_wait_until_all_vector(ivars, nelems, status, cmp, value) \
	YASMIN_SHMEM_OF_WAITED(ivars, , wait_until_all_vector)(ivars, nelems, status, cmp, value)
#define shmem_wait_until_any_vector(ivars, nelems, status, cmp, value) \
	YASMIN_SHMEM_OF_WAITED(ivars, , wait_until_any_vector)(ivars, nelems, status, cmp, value)
#define shmem_wait_until_some_vector(ivars, nelems, indices, status, cmp, value) \
	YASMIN_SHMEM_OF_WAITED(ivars, , wait_until_some_vector)(ivars, nelems, indices, status, cmp, value)
#define shmem_test_all(ivars, nelems, status, cmp, value) \
	YASMIN_SHMEM_OF_WAITED(ivars, , test_all)(ivars, nelems, status, cmp, value)
#define shmem_test_any(ivars, nelems, status, cmp, value) \
	YASMIN_SHMEM_OF_WAITED(ivars, , test_any)(ivars, nelems, status, cmp, value)
#define shmem_test_some(ivars, nelems, indices, status, cmp, value) \
	YASMIN_SHMEM_OF_WAITED(ivars, , test_some)(ivars, nelems, indices, status, cmp, value)
#define shmem_test_all_vector(ivars, nelems, status, cmp, value) \
	YASMIN_SHMEM_OF_WAITED(ivars, , test_all_vector)(ivars, nelems, status, cmp, value)
#define shmem_test_any_vector(ivars, nelems, status, cmp, value) \
	YASMIN_SHMEM_OF_WAITED(ivars, , test_any_vector)(ivars, nelems, status, cmp, value)
#define shmem_test_some_vector(ivars, nelems, indices, status, cmp, value) \
	YASMIN_SHMEM_OF_WAITED(ivars, , test_some_vector)(ivars, nelems, indices, status, cmp, value)

#endif
