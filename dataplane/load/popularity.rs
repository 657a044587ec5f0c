//! Which key is asked for.

use super::random::Random;

/// How often each of the keys is asked for. Key 0 is the most popular one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Popularity {
    /// All keys alike.
    Uniform,
    /// The key of rank r (from 1) with a chance that is proportional to r^-theta. `theta` is above 0; 0.99 is common.
    Zipf(f64),
}

/// Draws keys.
///
/// Zipf by rejection from the area below a continuous curve ("rejection-inversion", Hoermann and Derflinger 1996): no
/// table, the same cost for any number of keys, and exact.
#[derive(Clone, Copy, Debug)]
pub enum Ranks {
    /// See [`Popularity::Uniform`].
    Uniform {
        /// Number of keys.
        keys: u32,
    },
    /// See [`Popularity::Zipf`].
    Zipf(Zipf),
}

impl Ranks {
    /// Draws from `keys` keys.
    ///
    /// # Panics
    /// If there is no key, or theta is not above 0.
    pub fn new(keys: u32, popularity: Popularity) -> Self {
        assert!(keys > 0, "a load needs a key");
        match popularity {
            Popularity::Uniform => Ranks::Uniform { keys },
            Popularity::Zipf(theta) => Ranks::Zipf(Zipf::new(keys, theta)),
        }
    }

    /// A key, from 0.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u32 {
        match self {
            Ranks::Uniform { keys } => random.below(u64::from(*keys)) as u32,
            Ranks::Zipf(zipf) => zipf.draw(random),
        }
    }
}

/// The numbers of a Zipf distribution.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    keys: f64,
    theta: f64,
    /// 1 - theta, and its inverse; both 0 where theta is (almost) 1, whose integral is a logarithm.
    slope: f64,
    inverse: f64,
    /// The area's bounds: below rank 1 and beyond the last.
    first: f64,
    last: f64,
    /// Distance within which a rank is taken without a second look.
    near: f64,
}

impl Zipf {
    fn new(keys: u32, theta: f64) -> Self {
        assert!(theta > 0.0 && theta.is_finite(), "theta is a number above 0");
        let slope = 1.0 - theta;
        let (slope, inverse) = if slope.abs() < 1e-9 { (0.0, 0.0) } else { (slope, 1.0 / slope) };
        let keys = f64::from(keys);
        let mut zipf = Zipf { keys, theta, slope, inverse, first: 0.0, last: 0.0, near: 0.0 };
        zipf.first = zipf.area(1.5) - 1.0;
        zipf.last = zipf.area(keys + 0.5);
        zipf.near = 2.0 - zipf.position(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    /// The density at `x`.
    fn height(&self, x: f64) -> f64 {
        x.powf(-self.theta)
    }

    /// The area below the curve up to `x`, less a constant.
    fn area(&self, x: f64) -> f64 {
        if self.slope == 0.0 { x.ln() } else { (x.powf(self.slope) - 1.0) * self.inverse }
    }

    /// The `x` up to which the area is `area`.
    #[inline]
    fn position(&self, area: f64) -> f64 {
        if self.slope == 0.0 { area.exp() } else { (area * self.slope + 1.0).max(0.0).powf(self.inverse) }
    }

    #[inline]
    fn draw(&self, random: &mut Random) -> u32 {
        loop {
            let area = self.last + random.unit() * (self.first - self.last);
            let x = self.position(area);
            let rank = x.round().clamp(1.0, self.keys);
            if rank - x <= self.near || area >= self.area(rank + 0.5) - self.height(rank) {
                return rank as u32 - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts of each key in `draws` draws.
    fn counts(keys: u32, popularity: Popularity, draws: u32) -> Vec<f64> {
        let (ranks, mut random) = (Ranks::new(keys, popularity), Random::new(7));
        let mut counts = vec![0.0; keys as usize];
        (0..draws).for_each(|_| counts[ranks.draw(&mut random) as usize] += 1.0);
        counts
    }

    /// The sum of (seen - expected)^2 / expected: about as large as the number of cells, where the draws are right.
    fn chi_squared(counts: &[f64], chances: &[f64]) -> f64 {
        let (draws, all): (f64, f64) = (counts.iter().sum(), chances.iter().sum());
        let term = |(seen, chance): (&f64, &f64)| {
            let expected = draws * chance / all;
            (seen - expected).powi(2) / expected
        };
        counts.iter().zip(chances).map(term).sum()
    }

    /// Six standard deviations of the statistic: it fails by chance once in a billion, and the seed is fixed anyway.
    fn bound(cells: usize) -> f64 {
        cells as f64 + 6.0 * (2.0 * cells as f64).sqrt()
    }

    #[test]
    fn zipf_draws_are_as_frequent_as_theory_says() {
        for (keys, theta) in [(1000, 0.99), (1000, 1.0), (300, 0.5), (50, 1.3), (2, 0.99), (1, 2.0)] {
            let counts = counts(keys, Popularity::Zipf(theta), 400_000);
            let chances: Vec<f64> = (1..=keys).map(|r| f64::from(r).powf(-theta)).collect();
            let statistic = chi_squared(&counts, &chances);
            assert!(statistic < bound(keys as usize), "{keys} keys, theta {theta}: {statistic}");
        }
    }

    #[test]
    fn uniform_draws_are_uniform() {
        let statistic = chi_squared(&counts(1000, Popularity::Uniform, 400_000), &vec![1.0; 1000]);
        assert!(statistic < bound(1000), "{statistic}");
    }

    #[test]
    fn the_statistic_sees_a_wrong_theta() {
        let counts = counts(1000, Popularity::Zipf(0.99), 400_000);
        let chances: Vec<f64> = (1..=1000).map(|r| f64::from(r).powf(-0.97)).collect();
        assert!(chi_squared(&counts, &chances) > bound(1000));
    }

    #[test]
    fn many_keys_need_no_table() {
        let (ranks, mut random) = (Ranks::new(u32::MAX, Popularity::Zipf(0.99)), Random::new(1));
        let drawn: Vec<u32> = (0..10_000).map(|_| ranks.draw(&mut random)).collect();
        assert!(drawn.iter().any(|&key| key > 1_000_000_000) && drawn.contains(&0));
    }
}
