"""What supervises the model's container, asked how it ended: Kubernetes, Docker and Podman, systemd."""
