//! Linpack in memory larger than RAM: solves a dense system of linear equations by LU decomposition
//! with partial pivoting, and checks the residual.
//!
//! `swap_linpack SPILL POLICY --order N --memory BYTES`; SPILL is a path or a store's URL, and POLICY
//! a value of `swap.policy`. Prints one line of JSON: seconds to generate the matrix, to factorise
//! it and to solve the system, and the counters of the swap.
#![allow(clippy::print_stdout, reason = "prints a line of figures")]

use std::collections::HashMap;
use std::error::Error;
use std::time::Instant;

use bowwave_core::Random;
use bowwave_region::{Spill, Swap, SwapOptions, SwapVec};

/// Columns that are factorised together, as in HPL.
const BLOCK: usize = 64;

/// A square matrix by columns, as Linpack has it.
struct Matrix {
    order: usize,
    values: SwapVec<f64>,
}

impl Matrix {
    /// A random matrix with elements from -0.5 to 0.5; always the same.
    fn generate(swap: &Swap, order: usize) -> Result<Self, Box<dyn Error>> {
        let mut values = SwapVec::zeroed(swap, order * order)?;
        let mut random = Random::new(1);
        for value in values.iter_mut() {
            *value = random.bits() as f64 / u64::MAX as f64 - 0.5;
        }
        Ok(Self { order, values })
    }

    fn column(&self, column: usize) -> &[f64] {
        &self.values[column * self.order..][..self.order]
    }

    /// Two columns, of which the second may change; `from` is before `to`.
    fn columns(&mut self, from: usize, to: usize) -> (&[f64], &mut [f64]) {
        let (before, after) = self.values.split_at_mut(to * self.order);
        (&before[from * self.order..][..self.order], &mut after[..self.order])
    }

    /// Replaces the matrix by its factors; returns the pivot rows. Block by block: the columns
    /// right of a block are passed once for each block.
    fn factorise(&mut self) -> Vec<usize> {
        let mut pivots = Vec::with_capacity(self.order);
        for start in (0..self.order).step_by(BLOCK) {
            let end = self.order.min(start + BLOCK);
            for column in start..end {
                (start..column).for_each(|earlier| self.eliminate(earlier, column));
                let pivot = self.pivot(column);
                for other in start..end {
                    let at = other * self.order;
                    if other != column {
                        self.values[at..at + self.order].swap(column, pivot);
                    }
                }
                pivots.push(pivot);
            }
            for column in (0..start).chain(end..self.order) {
                let at = column * self.order;
                let rows = &mut self.values[at..at + self.order];
                (start..end).for_each(|row| rows.swap(row, pivots[row]));
                if column >= end {
                    (start..end).for_each(|earlier| self.eliminate(earlier, column));
                }
            }
        }
        pivots
    }

    /// Subtracts a multiple of a factorised column from a later one.
    fn eliminate(&mut self, earlier: usize, column: usize) {
        let (factor, values) = self.columns(earlier, column);
        let by = values[earlier];
        for (value, &factor) in values[earlier + 1..].iter_mut().zip(&factor[earlier + 1..]) {
            *value -= by * factor;
        }
    }

    /// Swaps the largest element of a column to its diagonal and divides the rest by it; returns
    /// its row.
    fn pivot(&mut self, column: usize) -> usize {
        let at = column * self.order;
        let values = &mut self.values[at..at + self.order];
        let largest =
            |best: usize, row: usize| if values[row].abs() > values[best].abs() { row } else { best };
        let row = (column..values.len()).fold(column, largest);
        values.swap(column, row);
        let by = values[column];
        values[column + 1..].iter_mut().for_each(|value| *value /= by);
        row
    }

    /// Solves the system of a factorised matrix.
    fn solve(&self, pivots: &[usize], mut right: Vec<f64>) -> Vec<f64> {
        for (row, &pivot) in pivots.iter().enumerate() {
            right.swap(row, pivot);
        }
        for column in 0..self.order {
            let by = right[column];
            for (value, &factor) in right[column + 1..].iter_mut().zip(&self.column(column)[column + 1..]) {
                *value -= by * factor;
            }
        }
        for column in (0..self.order).rev() {
            right[column] /= self.column(column)[column];
            let by = right[column];
            for (value, &factor) in right[..column].iter_mut().zip(self.column(column)) {
                *value -= by * factor;
            }
        }
        right
    }
}

/// Largest deviation from the right side, in units that Linpack calls normalised.
fn residual(matrix: &Matrix, solution: &[f64], right: &[f64]) -> f64 {
    let mut products = vec![0.0; matrix.order];
    for (column, &by) in solution.iter().enumerate() {
        products.iter_mut().zip(matrix.column(column)).for_each(|(sum, &value)| *sum += by * value);
    }
    let largest =
        |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, |best: f64, it| best.max(it.abs()));
    let error = largest(&mut products.iter().zip(right).map(|(is, should)| is - should));
    error / (0.5 * matrix.order as f64 * largest(&mut solution.iter().copied()) * f64::EPSILON)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut numbers, mut words) = (HashMap::<String, u64>::new(), Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.strip_prefix("--") {
            Some(name) => {
                let value = args.next().ok_or_else(|| format!("{arg} takes a number"))?;
                numbers.insert(name.to_owned(), value.parse()?);
            }
            None => words.push(arg),
        }
    }
    let [place, policy] = &words[..] else { return Err("usage: swap_linpack SPILL POLICY".into()) };
    let number = |name: &str, default: u64| numbers.get(name).copied().unwrap_or(default);
    let order = number("order", 2048) as usize;
    let bytes = 8 * (order * order) as u64 + (64 << 20);
    let spill = if place.contains(':') {
        Spill::store(bowwave_backend::open_url(place, &Default::default())?, "spill", bytes)
    } else {
        Spill::file(place, bytes)
    };
    let memory_bytes = Some(number("memory", 8 << 20));
    let swap = Swap::new(&spill, &SwapOptions { memory_bytes, ..SwapOptions::default() })?;
    swap.set("swap.policy", policy)?;
    let begin = Instant::now();
    let mut matrix = Matrix::generate(&swap, order)?;
    let right = vec![1.0; order];
    let generated = begin.elapsed();
    let pivots = matrix.factorise();
    let factorised = begin.elapsed();
    let solution = matrix.solve(&pivots, right.clone());
    let solved = begin.elapsed();
    let stats = swap.report().stats;
    drop(matrix);
    let residual = residual(&Matrix::generate(&swap, order)?, &solution, &right);
    println!(
        "{{\"policy\":\"{}\",\"order\":{order},\"generate_s\":{:.3},\"factorise_s\":{:.3},\"solve_s\":{:.3},\"residual\":{residual:.3},\
         \"swap_ra\":{},\"swap_ra_hit\":{},\"mapped_ahead\":{},\"wasted\":{},\"major_faults\":{},\"swap_in\":{},\"swap_out\":{}}}",
        swap.setting("swap.policy")?,
        generated.as_secs_f64(),
        (factorised - generated).as_secs_f64(),
        (solved - factorised).as_secs_f64(),
        stats.swap_ra,
        stats.swap_ra_hit,
        stats.mapped_ahead,
        stats.wasted,
        stats.major_faults,
        stats.swap_in,
        stats.swap_out,
    );
    if residual.is_nan() || residual > 16.0 {
        return Err(format!("the residual is {residual}: the solution is wrong").into());
    }
    Ok(())
}
