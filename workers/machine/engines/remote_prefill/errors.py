"""What can go wrong between a machine that reads prompts and one that writes answers.

Each of these ends in the answer being made directly; `code` tells the breakdown and the metrics why.
"""

from __future__ import annotations

from grading.domain.errors import GraderError


class TransferError(GraderError):
    """The prompt could not be read elsewhere."""

    code = "transfer_failed"


class PeerUnreachable(TransferError):
    """The reading machine does not answer."""

    code = "peer_unreachable"


class PeerRefused(TransferError):
    """The reading machine does not take this prompt, and says why."""

    code = "peer_refused"


class NotAuthentic(TransferError):
    """The other side does not know the secret."""

    code = "not_authentic"


class VersionDiffers(TransferError):
    """The two sides speak different versions of the protocol."""

    code = "version_differs"


class WeightsDiffer(TransferError):
    """The two sides do not have the same weights, tokenizer or number format."""

    code = "weights_differ"


class ForeignCache(TransferError):
    """The cache is of another program than mlx-lm."""

    code = "foreign_cache"


class NotTransferable(TransferError):
    """This kind of model keeps what it read in a form that is not sent."""

    code = "not_transferable"


class FrameCorrupt(TransferError):
    """What arrived is not what was sent."""

    code = "frame_corrupt"


class LinkStalled(TransferError):
    """Nothing arrived for too long."""

    code = "link_stalled"


class PeerLost(TransferError):
    """The other side ended the connection before all was sent."""

    code = "peer_lost"


class TooLarge(TransferError):
    """What would be kept in memory is more than the settings allow."""

    code = "too_large"


class OutOfTime(TransferError):
    """The time that reading elsewhere may take is over."""

    code = "out_of_time"
    received = 0
    """Bytes of the cache that had come."""
    sending_s = 0.0
    """Seconds since the first of them."""
