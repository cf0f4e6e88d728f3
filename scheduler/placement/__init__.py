"""Which GPU runs what: from a cluster and the sizes of two models to a plan, without starting anything."""
