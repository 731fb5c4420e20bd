"""Rules of inference recommendations: configurations, load and results. PURE."""
