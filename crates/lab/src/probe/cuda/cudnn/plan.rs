//! Execution plan: a graph as the library's descriptors, the engine that it selects, and its execution.

use std::ffi::c_void;

use cudarc::cudnn::sys;
use sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind, cudnnBackendHeurMode_t as Heuristic,
    cudnnDataType_t as Data, cudnnPointwiseMode_t as Mode,
};

use super::descriptor::{Address, Descriptor, Handle, Raw, check_status};
use crate::probe::sdpa::{Element, Graph, Operation, PointwiseOp, Role, Tensor, TensorPlace};
use crate::probe::source::ProbeError;

/// Alignment of every tensor in bytes, which the driver's allocations satisfy.
const ALIGNED: i64 = 16;

/// Device that a plan is for.
pub enum PlanDevice {
    /// Device of this handle.
    Here(sys::cudnnHandle_t),
    /// Device described by its properties; it need not be present.
    Described(Descriptor),
}

impl PlanDevice {
    /// Device from properties in the library's JSON form, from cuDNN 9.8 on.
    pub fn described(properties: &str) -> Result<Self, ProbeError> {
        let made = Descriptor::new(Kind::CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)?
            .with(Name::CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, properties.as_bytes())?;
        Ok(Self::Described(made.finished("the device's properties")?))
    }

    /// Sets the device on a descriptor that accepts a handle or a description.
    fn on(&self, to: Descriptor, here: Option<Name>, described: Option<Name>) -> Result<Descriptor, ProbeError> {
        match (self, here, described) {
            (Self::Here(handle), Some(name), _) => to.with(name, &[Handle(*handle)]),
            (Self::Described(device), _, Some(name)) => to.with(name, &[device.raw()]),
            _ => Ok(to),
        }
    }
}

/// Graph with the engine that runs it.
pub struct ExecutionPlan {
    // Finalised plan; descriptors are dropped in field order, references first.
    built: Descriptor,
    _config: Descriptor,
    _graph: Descriptor,
    _operations: Vec<Descriptor>,
    _tensors: Vec<Descriptor>,
    numbers: Vec<(i64, Box<u32>)>,
    given: Vec<(i64, Role)>,
    /// Engine number of the library.
    pub engine: i64,
    /// Workspace of the engine in bytes.
    pub workspace: usize,
}

impl ExecutionPlan {
    /// Builds the plan of the first engine, in the library's own order, that supports the graph: the one that frameworks
    /// run ([cudnn-frontend], mode A, then fallback). The error is the first engine's, or the heuristic's.
    pub fn new(graph: &Graph, device: &PlanDevice) -> Result<Self, ProbeError> {
        let tensors: Vec<Descriptor> = (0_i64..).zip(&graph.tensors).map(tensor).collect::<Result<_, _>>()?;
        let operations: Vec<Descriptor> =
            graph.operations.iter().map(|step| operation(step, graph, &tensors)).collect::<Result<_, _>>()?;
        let all: Vec<Raw> = operations.iter().map(Descriptor::raw).collect();
        let operation_graph = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
            .with(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &all)?;
        let operation_graph = device
            .on(operation_graph, Some(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE), None)?
            .finished("the operation graph")?;

        let mut refused = None;
        for mode in [Heuristic::CUDNN_HEUR_MODE_A, Heuristic::CUDNN_HEUR_MODE_FALLBACK] {
            let configs = match configs(&operation_graph, mode, device) {
                Ok(configs) => configs,
                Err(error) => {
                    refused.get_or_insert(error);
                    continue;
                }
            };
            for config in configs {
                let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
                    .with(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[config.raw()])?;
                let (here, described) =
                    (Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, Name::CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
                match device.on(plan, Some(here), Some(described))?.finished("the plan") {
                    Ok(plan) => {
                        let workspace = plan.number(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
                        return Ok(Self {
                            engine: engine(&config)?,
                            workspace: usize::try_from(workspace).unwrap_or(0),
                            numbers: numbers(graph),
                            given: graph.caller_tensors().map(|(id, role, _)| (unique(id), role)).collect(),
                            built: plan,
                            _config: config,
                            _graph: operation_graph,
                            _operations: operations,
                            _tensors: tensors,
                        });
                    }
                    Err(error) => {
                        refused.get_or_insert(error);
                    }
                }
            }
        }
        Err(refused.unwrap_or_else(|| ProbeError::Failed {
            call: "cuDNN's heuristics".into(),
            why: "no engine takes the graph".into(),
        }))
    }

    /// Executes the plan on the memory of each tensor.
    pub fn run(
        &self,
        handle: sys::cudnnHandle_t,
        memory: &dyn Fn(Role) -> *mut c_void,
        workspace: *mut c_void,
    ) -> Result<(), ProbeError> {
        let (mut ids, mut addresses): (Vec<i64>, Vec<Address>) =
            self.given.iter().map(|(id, role)| (*id, Address(memory(*role)))).unzip();
        for (id, number) in &self.numbers {
            ids.push(*id);
            addresses.push(Address(std::ptr::from_ref::<u32>(number).cast_mut().cast()));
        }
        let pack = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .with(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &ids)?
            .with(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &addresses)?
            .with(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[Address(workspace)])?
            .finished("the tensors' addresses")?;
        // SAFETY: the addresses are of memory as large as the graph's tensors; numbers on the host are read, not written.
        check_status("cudnnBackendExecute", unsafe {
            sys::cudnnBackendExecute(handle, self.built.pointer(), pack.pointer())
        })
    }
}

/// Number of a tensor in the library.
const fn unique(id: usize) -> i64 {
    (id as u64).cast_signed() + 1
}

/// Bit patterns of the scalars on the host.
fn numbers(graph: &Graph) -> Vec<(i64, Box<u32>)> {
    let number = |(id, tensor): (usize, &Tensor)| match tensor.place {
        TensorPlace::Number(value) if tensor.element == Element::I32 => {
            Some((unique(id), Box::new((value as i32).cast_unsigned())))
        }
        TensorPlace::Number(value) => Some((unique(id), Box::new(value.to_bits()))),
        TensorPlace::Given(_) | TensorPlace::Between => None,
    };
    graph.tensors.iter().enumerate().filter_map(number).collect()
}

const fn data(element: Element) -> Data {
    match element {
        Element::Bf16 => Data::CUDNN_DATA_BFLOAT16,
        Element::F32 => Data::CUDNN_DATA_FLOAT,
        Element::I32 => Data::CUDNN_DATA_INT32,
        Element::Bool => Data::CUDNN_DATA_BOOLEAN,
    }
}

fn tensor((id, tensor): (i64, &Tensor)) -> Result<Descriptor, ProbeError> {
    let Tensor { dims, strides, element, place } = *tensor;
    Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, &[data(element)])?
        .with(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &dims.map(u64::cast_signed))?
        .with(Name::CUDNN_ATTR_TENSOR_STRIDES, &strides.map(u64::cast_signed))?
        .with(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id + 1])?
        .with(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[ALIGNED])?
        .with(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[place == TensorPlace::Between])?
        .with(Name::CUDNN_ATTR_TENSOR_IS_BY_VALUE, &[matches!(place, TensorPlace::Number(_))])?
        .finished("a tensor")
}

const fn mode(op: PointwiseOp) -> Mode {
    match op {
        PointwiseOp::Add => Mode::CUDNN_POINTWISE_ADD,
        PointwiseOp::Sub => Mode::CUDNN_POINTWISE_SUB,
        PointwiseOp::Mul => Mode::CUDNN_POINTWISE_MUL,
        PointwiseOp::Div => Mode::CUDNN_POINTWISE_DIV,
        PointwiseOp::Exp => Mode::CUDNN_POINTWISE_EXP,
        PointwiseOp::Log => Mode::CUDNN_POINTWISE_LOG,
        PointwiseOp::Identity => Mode::CUDNN_POINTWISE_IDENTITY,
        PointwiseOp::GreaterOrEqual => Mode::CUDNN_POINTWISE_CMP_GE,
        PointwiseOp::Greater => Mode::CUDNN_POINTWISE_CMP_GT,
        PointwiseOp::Select => Mode::CUDNN_POINTWISE_BINARY_SELECT,
        PointwiseOp::Index(_) => Mode::CUDNN_POINTWISE_GEN_INDEX,
    }
}

fn operation(operation: &Operation, graph: &Graph, tensors: &[Descriptor]) -> Result<Descriptor, ProbeError> {
    let of = |id: usize| [tensors[id].raw()];
    let fp32 = [Data::CUDNN_DATA_FLOAT];
    match *operation {
        Operation::Matmul { a, b, out } => {
            let settings = Descriptor::new(Kind::CUDNN_BACKEND_MATMUL_DESCRIPTOR)?
                .with(Name::CUDNN_ATTR_MATMUL_COMP_TYPE, &fp32)?
                .finished("a matmul's precision")?;
            Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)?
                .with(Name::CUDNN_ATTR_OPERATION_MATMUL_ADESC, &of(a))?
                .with(Name::CUDNN_ATTR_OPERATION_MATMUL_BDESC, &of(b))?
                .with(Name::CUDNN_ATTR_OPERATION_MATMUL_CDESC, &of(out))?
                .with(Name::CUDNN_ATTR_OPERATION_MATMUL_DESC, &[settings.raw()])?
                .finished("a matmul")
        }
        Operation::Pointwise { op, x, b, chosen_by, out } => {
            let precision = match (graph.tensors[out].element, op) {
                (Element::Bool, _) => Data::CUDNN_DATA_BOOLEAN,
                (Element::I32, PointwiseOp::Add | PointwiseOp::Sub) => Data::CUDNN_DATA_INT32,
                _ => Data::CUDNN_DATA_FLOAT,
            };
            let settings = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?
                .with(Name::CUDNN_ATTR_POINTWISE_MODE, &[mode(op)])?
                .with(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, &[precision])?;
            let settings = match op {
                PointwiseOp::Index(axis) => settings.with(Name::CUDNN_ATTR_POINTWISE_AXIS, &[i64::from(axis)])?,
                _ => settings,
            };
            let settings = settings.finished("a pointwise mode")?;
            let mut made = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?
                .with(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[settings.raw()])?
                .with(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &of(x))?
                .with(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &of(out))?;
            if let Some(b) = b {
                made = made.with(Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &of(b))?;
            }
            if let Some(chosen_by) = chosen_by {
                made = made.with(Name::CUDNN_ATTR_OPERATION_POINTWISE_TDESC, &of(chosen_by))?;
            }
            made.finished("a pointwise operation")
        }
        Operation::Max { x, out } | Operation::Sum { x, out } => {
            let operator = if matches!(operation, Operation::Sum { .. }) {
                sys::cudnnReduceTensorOp_t::CUDNN_REDUCE_TENSOR_ADD
            } else {
                sys::cudnnReduceTensorOp_t::CUDNN_REDUCE_TENSOR_MAX
            };
            let settings = Descriptor::new(Kind::CUDNN_BACKEND_REDUCTION_DESCRIPTOR)?
                .with(Name::CUDNN_ATTR_REDUCTION_COMP_TYPE, &fp32)?
                .with(Name::CUDNN_ATTR_REDUCTION_OPERATOR, &[operator])?
                .finished("a reduction's operator")?;
            Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)?
                .with(Name::CUDNN_ATTR_OPERATION_REDUCTION_XDESC, &of(x))?
                .with(Name::CUDNN_ATTR_OPERATION_REDUCTION_YDESC, &of(out))?
                .with(Name::CUDNN_ATTR_OPERATION_REDUCTION_DESC, &[settings.raw()])?
                .finished("a reduction")
        }
        Operation::Transpose { x, out } => Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)?
            .with(Name::CUDNN_ATTR_OPERATION_RESHAPE_XDESC, &of(x))?
            .with(Name::CUDNN_ATTR_OPERATION_RESHAPE_YDESC, &of(out))?
            .finished("an exchange of rows and columns"),
    }
}

/// Engines with their settings, the likeliest first.
fn configs(graph: &Descriptor, mode: Heuristic, device: &PlanDevice) -> Result<Vec<Descriptor>, ProbeError> {
    let asked = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[graph.raw()])?
        .with(Name::CUDNN_ATTR_ENGINEHEUR_MODE, &[mode])?;
    let asked = device.on(asked, None, Some(Name::CUDNN_ATTR_ENGINEHEUR_DEVICEPROP))?.finished("the heuristic")?;
    let results = Name::CUDNN_ATTR_ENGINEHEUR_RESULTS;
    let count = asked.read::<Raw>(results, &mut [])?;
    let mut found: Vec<Descriptor> =
        (0..count).map(|_| Descriptor::new(Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)).collect::<Result<_, _>>()?;
    let mut into: Vec<Raw> = found.iter().map(Descriptor::raw).collect();
    let written = asked.read(results, &mut into)?;
    found.truncate(written);
    Ok(found)
}

/// Engine number of a configuration.
fn engine(config: &Descriptor) -> Result<i64, ProbeError> {
    let engine = Descriptor::new(Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
    config.read(Name::CUDNN_ATTR_ENGINECFG_ENGINE, &mut [engine.raw()])?;
    engine.number(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX)
}
