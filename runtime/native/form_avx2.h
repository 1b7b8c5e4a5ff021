/* What is done with a register of eight numbers; form_end.h takes the names back. */

#define FORM(name) name##_avx2
#define TARGET AVX2
#define VECTOR 8
#define VECTORS 2
#define Vector __m256
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#define REPEAT _mm256_set1_ps
#define ADD _mm256_add_ps
#define SUBTRACT _mm256_sub_ps
#define MULTIPLY _mm256_mul_ps
#define DIVIDE _mm256_div_ps
#define MULTIPLY_ADD _mm256_fmadd_ps
#define SUBTRACT_PRODUCT _mm256_fnmadd_ps
#define LARGER _mm256_max_ps
#define WHOLE(x) _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define TWO_TO(n)                                                                                                      \
    _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23))
#define ZERO_BELOW(x, least, y) _mm256_and_ps(y, _mm256_cmp_ps(x, least, _CMP_GE_OQ))
#define SUM(x) sum_of(x)
#define LARGEST(x) largest_of(x)
