"""The images and manifests of integrations/, built and played by a real podman."""
