//! Descriptors of cuDNN's backend: creation, attributes, finalisation, destruction.

use std::ffi::{CStr, c_void};

use cudarc::cudnn::sys;
use sys::{cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type};

use crate::probe::source::ProbeError;

/// Rust type of an attribute value, in cuDNN's memory layout.
pub trait Value: Copy {
    /// Name of the type in the library.
    const TYPE: Type;
}

/// Reference to another descriptor.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Raw(sys::cudnnBackendDescriptor_t);

/// Address of device memory, or of a number on the host.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Address(pub *mut c_void);

/// Handle of the library.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Handle(pub sys::cudnnHandle_t);

macro_rules! values {
    ($($rust:ty => $of:ident),*) => { $(impl Value for $rust { const TYPE: Type = Type::$of; })* };
}
values!(
    i64 => CUDNN_TYPE_INT64,
    bool => CUDNN_TYPE_BOOLEAN,
    u8 => CUDNN_TYPE_CHAR,
    Raw => CUDNN_TYPE_BACKEND_DESCRIPTOR,
    Address => CUDNN_TYPE_VOID_PTR,
    Handle => CUDNN_TYPE_HANDLE,
    sys::cudnnDataType_t => CUDNN_TYPE_DATA_TYPE,
    sys::cudnnPointwiseMode_t => CUDNN_TYPE_POINTWISE_MODE,
    sys::cudnnReduceTensorOp_t => CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
    sys::cudnnBackendHeurMode_t => CUDNN_TYPE_HEUR_MODE
);

/// Turns a status other than success into an error with cuDNN's message.
pub fn check_status(call: &str, status: sys::cudnnStatus_t) -> Result<(), ProbeError> {
    if status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS {
        return Ok(());
    }
    let mut text = [0_u8; 512];
    // SAFETY: the library writes at most so many bytes, the last of them zero.
    unsafe { sys::cudnnGetLastErrorString(text.as_mut_ptr().cast(), text.len()) };
    let reason = CStr::from_bytes_until_nul(&text).map(|text| text.to_string_lossy().trim().to_owned());
    let reason =
        reason.ok().filter(|reason| !reason.is_empty()).map_or_else(String::new, |reason| format!(": {reason}"));
    Err(ProbeError::Failed { call: call.to_owned(), why: format!("{status:?}{reason}") })
}

/// Owned backend descriptor.
pub struct Descriptor(sys::cudnnBackendDescriptor_t);

impl Descriptor {
    /// Creates an empty descriptor.
    pub fn new(kind: sys::cudnnBackendDescriptorType_t) -> Result<Self, ProbeError> {
        let mut made = std::ptr::null_mut();
        // SAFETY: the library writes one pointer.
        let status = unsafe { sys::cudnnBackendCreateDescriptor(kind, &raw mut made) };
        check_status(&format!("cudnnBackendCreateDescriptor {kind:?}"), status)?;
        Ok(Self(made))
    }

    /// Sets an attribute.
    pub fn with<T: Value>(self, name: Name, values: &[T]) -> Result<Self, ProbeError> {
        let count = i64::try_from(values.len()).unwrap_or(i64::MAX);
        // SAFETY: the descriptor lives, and so many values of this type lie there; the library copies them.
        let status = unsafe { sys::cudnnBackendSetAttribute(self.0, name, T::TYPE, count, values.as_ptr().cast()) };
        check_status(&format!("cudnnBackendSetAttribute {name:?}"), status)?;
        Ok(self)
    }

    /// Finalises the descriptor, which the library validates.
    pub fn finished(self, what: &str) -> Result<Self, ProbeError> {
        // SAFETY: the descriptor lives.
        check_status(&format!("cudnnBackendFinalize of {what}"), unsafe { sys::cudnnBackendFinalize(self.0) })?;
        Ok(self)
    }

    /// Reference for an attribute of another descriptor, which this one must outlive.
    pub const fn raw(&self) -> Raw {
        Raw(self.0)
    }

    /// Raw pointer for a library call.
    pub const fn pointer(&self) -> sys::cudnnBackendDescriptor_t {
        self.0
    }

    /// Reads values of an attribute, and returns their number.
    pub fn read<T: Value>(&self, name: Name, values: &mut [T]) -> Result<usize, ProbeError> {
        let (room, mut count) = (i64::try_from(values.len()).unwrap_or(i64::MAX), 0);
        let to = if values.is_empty() { std::ptr::null_mut() } else { values.as_mut_ptr().cast() };
        // SAFETY: the descriptor lives, and there is room for as many values of this type as are asked for.
        let status = unsafe { sys::cudnnBackendGetAttribute(self.0, name, T::TYPE, room, &raw mut count, to) };
        check_status(&format!("cudnnBackendGetAttribute {name:?}"), status)?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Reads an attribute that is a single number.
    pub fn number(&self, name: Name) -> Result<i64, ProbeError> {
        let mut value = [0_i64];
        self.read(name, &mut value)?;
        Ok(value[0])
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
    }
}
