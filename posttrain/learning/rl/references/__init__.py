"""What becomes of the reference policy while the policy moves on."""
