/* What is done with a register of sixteen numbers; form_end.h takes the names back. */

#define FORM(name) name##_avx512
#define TARGET AVX512
#define VECTOR 16
#define VECTORS 4
#define Vector __m512
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define REPEAT _mm512_set1_ps
#define ADD _mm512_add_ps
#define SUBTRACT _mm512_sub_ps
#define MULTIPLY _mm512_mul_ps
#define DIVIDE _mm512_div_ps
#define MULTIPLY_ADD _mm512_fmadd_ps
#define SUBTRACT_PRODUCT _mm512_fnmadd_ps
#define LARGER _mm512_max_ps
#define WHOLE(x) _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define TWO_TO(n)                                                                                                      \
    _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23))
#define ZERO_BELOW(x, least, y) _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, least, _CMP_GE_OQ), y)
#define SUM(x) _mm512_reduce_add_ps(x)
#define LARGEST(x) _mm512_reduce_max_ps(x)
