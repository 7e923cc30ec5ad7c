"""How Tablestore is deployed: images, compose, Kubernetes, systemd, and the same on one machine."""
