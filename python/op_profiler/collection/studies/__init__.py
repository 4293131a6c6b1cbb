"""What is asked of a model's operators beside their times: tuning, comparing, the vendor's kernels."""
