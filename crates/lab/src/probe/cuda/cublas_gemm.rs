//! GEMM descriptors and execution through cuBLASLt.

use std::ffi::c_void;

use cudarc::cublaslt::{result as lt, sys as ltsys};
use cudarc::driver::sys as drv;

use super::failure::failed;
use super::memory::Buffer;
use crate::probe::kernel::Gemm;
use crate::probe::source::ProbeError;
use meshwright_engine::gpu::Format;
use meshwright_engine::kernel::Pass;

/// Workspace of a GEMM: NVIDIA's recommendation for Hopper and later (cuBLAS documentation, cublasSetWorkspace).
pub const WORKSPACE: usize = 32 << 20;
/// Number of cuBLASLt algorithms to try for each GEMM.
const CANDIDATES: usize = 8;

/// GEMM in cuBLASLt's column-major order, so that our rows are its columns.
pub struct CublasGemm {
    handle: ltsys::cublasLtHandle_t,
    call: ltsys::cublasLtMatmulDesc_t,
    left: ltsys::cublasLtMatrixLayout_t,
    right: ltsys::cublasLtMatrixLayout_t,
    output: ltsys::cublasLtMatrixLayout_t,
    beta: f32,
}

impl CublasGemm {
    /// Descriptors of out\[m,n\] = a\[m,k\]·b: column by column that is outᵀ = bᵀ·aᵀ, of n rows and m columns.
    ///
    /// ```text
    /// forward   weights [n,k], activations [m,k]     bᵀ transposed, aᵀ plain          TN
    /// dgrad     weights [k,n], gradients [m,k]       both plain                       NN
    /// wgrad     both by tokens: [k,n], [k,m]         bᵀ plain, aᵀ transposed          NT
    /// FP8       operands are stored by k: always TN
    /// ```
    pub fn new(gemm: &Gemm, handle: ltsys::cublasLtHandle_t, scale: &Buffer) -> Result<Self, ProbeError> {
        use ltsys::cublasLtMatmulDescAttributes_t as Attribute;
        use ltsys::cudaDataType as Type;
        let Gemm { format, pass, m, n, k, batch, output_bytes } = *gemm;
        let narrow = format != Format::Bf16;
        let pass = if narrow { Pass::Forward } else { pass };
        let kind = if narrow { Type::CUDA_R_8F_E4M3 } else { Type::CUDA_R_16BF };
        let wide = if output_bytes >= 8 { Type::CUDA_R_32F } else { Type::CUDA_R_16BF };
        let layout = |kind, rows: u64, columns: u64| {
            let made = lt::create_matrix_layout(kind, rows, columns, rows.cast_signed());
            made.map_err(|error| failed("cublasLtMatrixLayoutCreate", error))
        };
        let left = if pass == Pass::Forward { layout(kind, k, n)? } else { layout(kind, n, k)? };
        let right = if pass == Pass::Wgrad { layout(kind, m, k)? } else { layout(kind, k, m)? };
        let output = layout(wide, n, m)?;
        let call = lt::create_matmul_desc(ltsys::cublasComputeType_t::CUBLAS_COMPUTE_32F, Type::CUDA_R_32F)
            .map_err(|error| failed("cublasLtMatmulDescCreate", error))?;
        let set = |attribute, value: *const c_void, bytes| {
            // SAFETY: the descriptor lives, and `value` points to `bytes` bytes of the attribute's type.
            unsafe { lt::set_matmul_desc_attribute(call, attribute, value, bytes) }
                .map_err(|error| failed(&format!("cublasLtMatmulDescSetAttribute {attribute:?}"), error))
        };
        let (transposed, plain) = (1_i32, 0_i32);
        let left_way = if pass == Pass::Forward { &transposed } else { &plain };
        let right_way = if pass == Pass::Wgrad { &transposed } else { &plain };
        set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, std::ptr::from_ref(left_way).cast(), 4)?;
        set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, std::ptr::from_ref(right_way).cast(), 4)?;
        if narrow {
            for side in
                [Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER]
            {
                set(side, (&raw const scale.at).cast(), size_of::<drv::CUdeviceptr>())?;
            }
        }
        let count = i32::try_from(batch).unwrap_or(i32::MAX);
        for (matrix, elements) in [(left, n * k), (right, k * m), (output, n * m)] {
            use ltsys::cublasLtMatrixLayoutAttribute_t as Of;
            let apart = elements.cast_signed();
            // SAFETY: the layout lives, and the values are of the attributes' types.
            let set = unsafe {
                lt::set_matrix_layout_attribute(
                    matrix,
                    Of::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                    (&raw const count).cast(),
                    4,
                )
                .and_then(|()| {
                    let of = Of::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
                    lt::set_matrix_layout_attribute(matrix, of, (&raw const apart).cast(), 8)
                })
            };
            set.map_err(|error| failed("cublasLtMatrixLayoutSetAttribute", error))?;
        }
        let beta = if output_bytes > 2 { 1.0 } else { 0.0 };
        Ok(Self { handle, call, left, right, output, beta })
    }

    /// Algorithms that the library proposes, the likeliest first.
    pub fn algorithms(&self) -> Result<Vec<ltsys::cublasLtMatmulAlgo_t>, ProbeError> {
        let wish = lt::create_matmul_pref().map_err(|error| failed("cublasLtMatmulPreferenceCreate", error))?;
        let limit = ltsys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let mut found: [std::mem::MaybeUninit<ltsys::cublasLtMatmulHeuristicResult_t>; CANDIDATES] =
            [const { std::mem::MaybeUninit::uninit() }; CANDIDATES];
        let (mut count, most) = (0, WORKSPACE);
        // SAFETY: all descriptors live; the library writes at most `CANDIDATES` results and says how many.
        let status = unsafe {
            lt::set_matmul_pref_attribute(wish, limit, (&raw const most).cast(), size_of::<usize>())
                .map_err(|error| failed("cublasLtMatmulPreferenceSetAttribute", error))?;
            let status = ltsys::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                self.call,
                self.left,
                self.right,
                self.output,
                self.output,
                wish,
                i32::try_from(CANDIDATES).unwrap_or(1),
                found.as_mut_ptr().cast(),
                &raw mut count,
            );
            let _ = lt::destroy_matmul_pref(wish);
            status
        };
        status.result().map_err(|error| failed("cublasLtMatmulAlgoGetHeuristic", error))?;
        // SAFETY: the library has written the first `count`.
        Ok(found[..usize::try_from(count).unwrap_or(0).min(CANDIDATES)]
            .iter()
            .map(|result| unsafe { result.assume_init_ref().algo })
            .collect())
    }

    /// Executes the GEMM once.
    pub fn run(
        &self,
        algorithm: &ltsys::cublasLtMatmulAlgo_t,
        [right, left, output]: &[Buffer; 3],
        workspace: &Buffer,
        stream: drv::CUstream,
    ) -> Result<(), ProbeError> {
        let alpha = 1.0_f32;
        // SAFETY: the buffers hold the matrices of the layouts and outlive the call, which the caller waits for.
        let called = unsafe {
            lt::matmul(
                self.handle,
                self.call,
                (&raw const alpha).cast(),
                (&raw const self.beta).cast(),
                left.pointer(),
                self.left,
                right.pointer(),
                self.right,
                output.pointer(),
                self.output,
                output.pointer(),
                self.output,
                algorithm,
                workspace.pointer(),
                WORKSPACE,
                stream.cast(),
            )
        };
        called.map_err(|error| failed("cublasLtMatmul", error))
    }
}

impl Drop for CublasGemm {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed once.
        unsafe {
            let _ = lt::destroy_matmul_desc(self.call);
            for layout in [self.left, self.right, self.output] {
                let _ = lt::destroy_matrix_layout(layout);
            }
        }
    }
}
