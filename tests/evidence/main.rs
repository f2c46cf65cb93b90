//! Evidence: predictions against published runs, training logs, calibration.

#[path = "../random/mod.rs"]
mod random;

mod accuracy;
mod accuracy_document;
mod calibration;
mod diagnose;
mod in_runs;
mod layouts;
mod logs;
mod memory;
mod missed;
mod mixers;
mod networks;
mod picks;
mod published;
mod ran;
mod ranks;
mod scans;
mod silicon;
mod stated;
mod steps;
mod tables;
mod trainers;
mod unproven;
mod verified;
