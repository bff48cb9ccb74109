"""Files in object stores, such as S3.

===================  ===============================================================================
`storage`            `ObjectStorage`, which makes a storage of a bucket
`files`              objects that are open, for reading or for writing
`requests`           what is done when a request is refused or not answered
`bucket`             the requests that a bucket answers
`memory_bucket`      a bucket in the memory of this process
`obstore_bucket`     buckets of S3, by the library obstore
===================  ===============================================================================
"""
